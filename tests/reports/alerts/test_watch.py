import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.metrics import HEADLINES
from pertoken.migrations import upgrade
from pertoken.reports.alerts import TRIES, AlertWatch, alerts_of, standing_alerts
from pertoken.reports.delivery import NotDelivered
from pertoken.settings.alerts import DEFAULTS, AlertSettings, read_alerts
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from tests.reports.builders import END, recorded
from tests.reports.receivers import receiver
from tests.scenario import HEALTHY_70B, seed

DEAR = {"when": "usd_per_mtok > 2.5", "for": "2m", "scope": "model=*", "window": "3h"}


OFF = {name: {"enabled": False} for name in DEFAULTS}


def only(alerts: Mapping[str, object]) -> tuple[AlertSettings, ...]:
    """Return these alerts, with every default one switched off."""
    return read_alerts({**OFF, **alerts})


class Sent:
    """Sent events; the first `failing` calls fail."""

    def __init__(self, failures: int = 0) -> None:
        self.events: list[str] = []
        self.destinations: list[str] = []
        self.reasons: list[str | None] = []
        self.tries = 0
        self._failures = failures

    def __call__(self, destination: str, body: str, now_ts: int, delivery_id: str) -> None:
        self.tries += 1
        if self._failures:
            self._failures -= 1
            raise NotDelivered(f"{destination}: status 500")
        self.destinations.append(destination)
        self.events.append(json.loads(body)["event"])
        self.reasons.append(json.loads(body)["reason"])


def database(tmp_path: Path) -> StoreLocation:
    where = recorded(tmp_path / "db")
    upgrade(where, "advice")
    return where


def watch(where: StoreLocation, sent: Sent, **alerts: object) -> AlertWatch:
    return AlertWatch(where, Settings(alerts=only(alerts or {"dear": DEAR})), sent)


def test_an_alert_fires_once_across_restarts_and_resolves_once(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    for minute in range(5):
        watch(where, sent).round(END + 60 * minute)  # each round in a new process, as it were
    assert sent.events == ["fired"]
    (row,) = standing_alerts(open_store(where))
    assert (row.state, row.since_ts) == ("FIRING", END + 120) and row.target.startswith("model=meta-llama/")
    cheap = {"dear": {**DEAR, "when": "usd_per_mtok > 99"}}
    for minute in range(5, 10):
        watch(where, sent, **cheap).round(END + 60 * minute)
    assert sent.events == ["fired", "resolved"] and standing_alerts(open_store(where)) == []


def test_a_changed_headline_leaves_an_alert_on_the_figure_that_its_event_names(tmp_path: Path) -> None:
    where, bodies = database(tmp_path), list[Mapping[str, object]]()

    def keep(destination: str, body: str, now_ts: int, delivery_id: str) -> None:
        bodies.append(json.loads(body))

    headlines = list(HEADLINES)
    for minute in range(5):
        settings = Settings(alerts=only({"dear": DEAR}), headline=headlines[minute % len(headlines)])
        AlertWatch(where, settings, keep).round(END + 60 * minute)
    (fired,) = bodies
    assert (fired["event"], fired["figure"], fired["unit"]) == ("fired", "usd_per_mtok", "USD/Mtok")
    for minute in range(5, 10):
        AlertWatch(where, Settings(alerts=only({"dear": DEAR}), headline="generated"), keep).round(END + 60 * minute)
    assert len(bodies) == 1, "it neither resolves nor fires again"


def test_a_failed_delivery_is_tried_five_times_with_growing_waits(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent(failures=99)
    quick = {"dear": {**DEAR, "for": "0s"}}
    tried = []
    for minute in range(40):
        before = sent.tries
        watch(where, sent, **quick).round(END + 60 * minute)
        tried += [minute] * (sent.tries - before)
    assert tried == [0, 1, 3, 7, 15] and len(tried) == TRIES


def test_a_delivery_that_failed_once_arrives_once(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent(failures=1)
    for minute in range(5):
        watch(where, sent, dear={**DEAR, "for": "0s"}).round(END + 60 * minute)
    assert sent.events == ["fired"] and sent.tries == 2


def test_the_same_event_is_sent_by_one_of_two_advisors(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    first, second = (watch(where, sent, dear={**DEAR, "for": "0s"}) for _ in range(2))
    first.round(END)
    second.round(END)
    assert sent.events == ["fired"]


def test_no_secret_of_a_url_is_stored(tmp_path: Path) -> None:
    where = database(tmp_path)
    with receiver() as hook:
        hook.statuses.append(500)
        alerts = only({"dear": {**DEAR, "for": "0s", "to": [f"{hook.url}/s3cret-path"]}})
        AlertWatch(where, Settings(alerts=alerts)).round(END)
        assert len(hook.posts) == 1
    folder = where.file("advice").parent
    assert not any(b"s3cret-path" in file.read_bytes() for file in folder.iterdir() if file.is_file())


def test_an_alert_of_a_model_that_was_taken_down_resolves_once_with_the_reason(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    short = {"dear": {**DEAR, "window": "1h"}}
    for minute in range(3):
        watch(where, sent, **short).round(END + 60 * minute)
    assert sent.events == ["fired"]
    later = END + 4 * 3600
    watch(where, sent, **short).round(later)
    (row,) = standing_alerts(open_store(where))
    assert row.state == "FIRING", "no host was recorded in the window: the model may still run"
    other = replace(HEALTHY_70B, model="another/model")
    seed(where, other, gpus=2, usd_per_hour=None, minutes=60, end_ts=later, host="gpu-2")
    for minute in range(6):
        watch(where, sent, **short).round(later + 60 * minute)
    assert sent.events == ["fired", "resolved"] and sent.reasons == [None, "no longer there"]
    assert standing_alerts(open_store(where)) == []


def test_a_target_that_comes_back_in_time_does_not_resolve(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    other = {"dear": {**DEAR, "scope": "model=another"}}
    for minute in range(3):
        watch(where, sent).round(END + 60 * minute)
    watch(where, sent, **other).round(END + 180)
    for minute in range(4, 8):
        watch(where, sent).round(END + 60 * minute)
    assert sent.events == ["fired"]
    for minute in range(8, 12):
        watch(where, sent, **other).round(END + 60 * minute)
    assert sent.events == ["fired", "resolved"] and sent.reasons[-1] == "no longer there"


HOOK = "http://127.0.0.1:9/s3cret"


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ({}, "no longer watched (removed from the settings)"),
        ({"dear": {**DEAR, "enabled": False}}, "no longer watched (enabled = false)"),
    ],
)
def test_an_alert_that_is_removed_or_disabled_while_it_fires_resolves_once_with_the_reason(
    tmp_path: Path, left: dict[str, object], reason: str
) -> None:
    where, sent = database(tmp_path), Sent()
    for minute in range(3):
        watch(where, sent).round(END + 60 * minute)
    assert sent.events == ["fired"] and standing_alerts(open_store(where))
    for minute in range(3, 6):
        AlertWatch(where, Settings(alerts=only(left)), sent).round(END + 60 * minute)
    assert sent.events == ["fired", "resolved"] and sent.reasons == [None, reason]
    assert standing_alerts(open_store(where)) == []


def test_an_alert_that_is_removed_before_it_fired_sends_nothing(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    watch(where, sent).round(END)
    assert standing_alerts(open_store(where))
    AlertWatch(where, Settings(alerts=only({})), sent).round(END + 60)
    assert sent.events == [] and standing_alerts(open_store(where)) == []


def test_a_webhook_learns_that_a_disabled_alert_ended(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    hooked = {**DEAR, "for": "0s", "to": [HOOK]}
    watch(where, sent, dear=hooked).round(END)
    watch(where, sent, dear={**hooked, "enabled": False}).round(END + 60)
    assert sent.destinations == [HOOK, HOOK] and sent.events == ["fired", "resolved"]


def test_a_webhook_that_went_with_its_alert_is_named_in_the_log_without_its_url(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where, sent = database(tmp_path), Sent()
    watch(where, sent, dear={**DEAR, "for": "0s", "to": ["mail", HOOK]}).round(END)
    AlertWatch(where, Settings(alerts=only({})), sent).round(END + 60)
    assert sorted(sent.destinations[:2]) == [HOOK, "mail"] and sorted(sent.destinations[2:]) == ["log", "mail"]
    assert "alert dear: its end is not sent to its webhook" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_unmeasured_figure_neither_fires_nor_resolves(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    watch(where, sent, budget={"when": "budget_share > 0", "for": "0s"}).round(END)
    assert sent.events == [] and standing_alerts(open_store(where)) == []


def test_an_alert_on_an_unknown_figure_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"alerts.dear.when: no figure is named usd_mtok"):
        watch(StoreLocation(folder=tmp_path), Sent(), dear={"when": "usd_mtok > 1"})


def test_alerts_that_need_no_settings_are_evaluated_and_can_be_changed_and_switched_off() -> None:
    settings = Settings(
        alerts=read_alerts({"stuck": {"for": "10m", "to": ["mail"]}, "slo-missed": {"enabled": False}}),
        delivery_alerts_to=(HOOK,),
    )
    alerts = {alert.name: alert for alert in alerts_of(settings)}
    assert set(alerts) == {*DEFAULTS} - {"over-budget"}, "there is no budget"
    assert (alerts["stuck"].for_s, alerts["stuck"].to, alerts["stuck"].severity) == (600.0, ("mail",), "critical")
    assert alerts["telemetry-lost"].to == (HOOK,) and not alerts["slo-missed"].enabled
    budgeted = {alert.name for alert in alerts_of(replace(settings, budget_usd_per_month=1000.0))}
    assert budgeted == {*DEFAULTS}


def test_a_host_that_stops_reporting_is_an_alert_without_any_setting(tmp_path: Path) -> None:
    where, sent = database(tmp_path), Sent()
    for minute in range(2, 12):
        AlertWatch(where, Settings(), sent).round(END + 60 * minute)
    lost = [row for row in standing_alerts(open_store(where)) if row.name == "telemetry-lost"]
    assert [row.state for row in lost] == ["FIRING"] and lost[0].target.startswith("host=")
    assert sent.destinations[0] == "log"
