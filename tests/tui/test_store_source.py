"""Decisions, prices and switches that the screens store in a database."""

import time
from pathlib import Path

import pytest

from pertoken.advisor.configuration import claim, configuration_of
from pertoken.advisor.rules import discovery
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.proof.recommendation import State, short_id
from pertoken.proof.stored import keep
from pertoken.proof.trials.trial import Status
from pertoken.reports.alerts import AlertEventKind, body_of
from pertoken.settings.alerts import read_alerts
from pertoken.store.connect.location import locate
from pertoken.store.repository import AdviceChanged, AdviceRepository, add_alert_delivery
from pertoken.store.schema.shared import stable_id
from pertoken.tui.store_source import StoreSource
from pertoken.units import NANO_USD
from pertoken.window.figures import no_progress
from tests.proof.rows import row
from tests.proof.trials.minutes import BEGUN, CANARY, CONTROL, before, proposed
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store


def test_a_decision_is_stored_against_the_version_that_was_read(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    keep(AdviceRepository(where), [row()], {"quantize"}, int(time.time()), "advisor")
    source = StoreSource(where)
    (read,) = source.advice()
    assert ": accepted, promised" in source.decide(read, "accept")
    with pytest.raises(AdviceChanged, match=r"changed by someone else meanwhile \(now accepted, by "):
        source.decide(read, "dismiss")
    (now,) = source.advice()
    assert now.state is State.ACCEPTED
    with pytest.raises(BadInput, match="this is the past: leave --at out to decide"):
        StoreSource(where, as_of=60).decide(now, "reopen")


def test_a_trial_is_begun_looked_at_and_shown_with_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.tui.store_source.time.time", lambda: BEGUN)
    where = before(tmp_path, CANARY, CONTROL)
    read = proposed(where)
    with pytest.raises(BadInput, match=r"set advisor\.quality_check"):
        StoreSource(where, settings=Settings()).decide(read, "trial")
    checked = Settings(advisor_quality_check=("true",))
    source = StoreSource(where, settings=checked)
    line = source.decide(read, "trial")
    assert "the trial is running: waiting for the canary, tiny on gpu-1, to run with weight_dtype fp8" in line
    (now,) = source.advice()
    assert now.state is State.ACCEPTED and now.estimate == read.best
    assert source.decide(now, "trial").startswith(f"{short_id(now)}: the trial is running: waiting for the canary")
    detail = source.detail((), now, {}, no_progress)
    assert detail.trial is not None and detail.trial.status is Status.RUNNING
    assert detail.seen is not None and detail.seen.canary_ts is None


def test_rules_are_loaded_with_their_pages_and_switched_in_a_file_beside_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "installed", lambda: ())
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "mine.py").write_text("x = [\n")
    source = StoreSource(locate(str(tmp_path / "db")), settings=Settings(source=tmp_path / "pertoken.toml"))
    known = source.rules()
    assert known.folder == str(tmp_path / "rules.d")
    assert [(rule.entry.id, rule.entry.state) for rule in known.rules] == [("mine", "broken")]
    assert "SyntaxError" in known.rules[0].page
    assert source.switch("mine", False) == "mine is off from the next run on."
    assert source.rules().rules[0].entry.state == "disabled"
    assert source.switch("mine", True) == "mine runs again from the next run on."
    with pytest.raises(BadInput, match="this is the past"):
        StoreSource(locate(str(tmp_path / "db")), as_of=60).switch("mine", False)
    with pytest.raises(BadInput, match="this is a recording: it is read-only"):
        StoreSource(locate(str(tmp_path / "db")), as_of=60, recorded_from=0).switch("mine", False)


def test_a_price_counts_from_the_beginning_where_there_was_none_and_nothing_is_priced_in_the_past(
    tmp_path: Path,
) -> None:
    end = int(time.time()) // 60 * 60
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=10, end_ts=end)
    source = StoreSource(where)
    name = source.fleet(600).devices[0].name
    assert source.fleet(600).bill is None
    assert source.set_price(name, 2 * NANO_USD).startswith(f"{name}: $2.00 an hour from the beginning")
    report = source.fleet(600)
    assert report.bill is not None and report.bill.paid > 0
    assert "from now on" in source.set_price(name, 3 * NANO_USD)
    with pytest.raises(BadInput, match="this is the past: leave --at out to set a price"):
        StoreSource(where, as_of=60).set_price(name, 1)
    with pytest.raises(BadInput, match="read-only"):
        StoreSource(where, as_of=60, recorded_from=0).set_price(name, 1)


def test_alerts_that_fired_and_resolved_in_the_window_are_events(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    now_ts = int(time.time()) // 60 * 60
    seed(where, LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=10, end_ts=now_ts)
    (alert,) = read_alerts({"stuck": {"to": ["log", "mail"]}})
    with AdviceRepository(where).writing() as connection:
        for ts, event in (
            (now_ts - 7200, AlertEventKind.FIRED),
            (now_ts - 120, AlertEventKind.FIRED),
            (now_ts - 60, AlertEventKind.RESOLVED),
        ):
            body = body_of(alert, "model=chat", event, 1.0, ts)
            for destination in alert.to:
                values = {"name": "stuck", "destination": destination, "body": body, "created_ts": ts}
                delivery_id = stable_id("alert", destination, ts)
                add_alert_delivery(connection, values | {"delivery_id": delivery_id, "next_ts": None, "tries": 1})
    shown = [event.message for event in StoreSource(where).fleet(3600).events if event.kind == "alert"]
    assert [" ".join(message.split()[:3]) for message in shown] == ["alert stuck resolved:", "alert stuck fired:"]


def test_without_a_run_the_source_has_the_time_of_the_first_one_and_then_no_reason(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    assert "No rule has run yet" in (StoreSource(where).no_advice() or "")
    claim(AdviceRepository(where), configuration_of(Settings()), 0, "a test")
    assert StoreSource(where).no_advice() is None
