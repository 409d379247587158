"""Troubles of the moment by kind, with their dollars and their command."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import DeploymentLine, FleetReport, LostPrice, TroubleKind
from pertoken.costs.repricing import read_prices
from pertoken.proof.recommendation import GO_BACK, Edit, short_id
from pertoken.proof.troubles import MAX_SILENT_S, slo_ratios, stuck_s, troubles, with_commands, with_troubles
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.state.service import Slo
from pertoken.store import repository
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from tests.proof.rows import FP8, row
from tests.scenario import LOW_BATCH_70B, seed
from tests.tui.figures import CHAT, host
from tests.tui.reports import RICH

HOUR = 3600
END = 1_800_000_000
HUNG = replace(CHAT, generated_tok_s_now=0.0, prompt_tok_s_now=0.0, running_now=3.0, spark=(600.0, 0.0, 0.0, 0.0))


def no_objective(_: str) -> Slo:
    return Slo()


def report_of(*lines: DeploymentLine, **values: Any) -> FleetReport:
    hosts = values.pop("hosts", (host(1, "gpu-a"),))
    return replace(RICH, hosts=hosts, deployments=lines, window_s=HOUR, **values)


def kinds(report: FleetReport, verdicts: tuple[Verdict, ...] = (), slo: Slo | None = None) -> list[TroubleKind]:
    return [trouble.kind for trouble in troubles(report, verdicts, lambda _: slo or Slo())]


def test_a_healthy_fleet_has_no_trouble() -> None:
    assert kinds(report_of(CHAT)) == []


def test_an_engine_with_requests_and_no_token_is_stuck_and_its_dollars_are_named() -> None:
    (trouble,) = troubles(report_of(HUNG), (), no_objective)
    assert trouble.kind is TroubleKind.STUCK and trouble.nano_usd_per_hour == CHAT.nano_usd_per_hour
    assert trouble.reason == "3 requests run and 0 wait, but no token came for 45m or longer"


@pytest.mark.parametrize(
    "line",
    [
        replace(HUNG, running_now=0.0, waiting_now=0.0),
        replace(HUNG, running_now=None, waiting_now=None),
        replace(HUNG, generated_tok_s_now=None),
        replace(HUNG, prompt_tok_s_now=900.0),
        replace(HUNG, late=("generated_tokens",)),
        replace(HUNG, ended=True),
        replace(HUNG, spark=(*(9.0,) * 59, 0.0)),
    ],
    ids=["idle", "requests unknown", "tokens unknown", "prefills", "counts at the end", "ended", "one quiet minute"],
)
def test_an_engine_without_requests_or_with_unknown_tokens_or_a_short_pause_is_not_stuck(line: DeploymentLine) -> None:
    assert stuck_s(line, HOUR) is None


def test_an_engine_is_stuck_five_minutes_after_its_last_token_wherever_a_slice_begins() -> None:
    """An hour has slices of five minutes, of which the one with the last token is no quiet one."""
    slices = (600.0,) * 11
    assert stuck_s(replace(HUNG, spark=(*slices, 0.0), silent_s=60), HOUR) is None, "a slice that has just begun"
    assert stuck_s(replace(HUNG, spark=(*slices, 0.0), silent_s=300), HOUR) == 300
    assert stuck_s(replace(HUNG, spark=(*slices, 0.0, 0.0), silent_s=420), HOUR) == 420
    assert stuck_s(replace(HUNG, spark=(*slices, None), silent_s=3000), HOUR) == 300, "no more than was observed"


def test_an_engine_that_counts_at_the_end_of_requests_is_stuck_after_a_window_without_tokens() -> None:
    assert stuck_s(replace(HUNG, late=("generated_tokens",), spark=(None, 0.0, 0.0, 0.0)), HOUR) == 2700


def test_an_engine_that_stopped_answering_has_lost_telemetry_and_one_never_read_is_only_a_hint() -> None:
    assert kinds(report_of(replace(CHAT, fault="no answer"))) == [TroubleKind.SILENT]
    assert kinds(report_of(replace(CHAT, fault="404: start it with --metrics", coverage=0.0))) == []


def test_an_engine_is_saturated_where_more_requests_wait_than_run_or_the_first_token_is_late() -> None:
    assert kinds(report_of(replace(CHAT, running_now=14.0, waiting_now=443.0))) == [TroubleKind.SATURATED]
    assert kinds(report_of(replace(CHAT, ttft_p95_s=78.0))) == [TroubleKind.SATURATED]
    assert kinds(report_of(replace(CHAT, running_now=0.2, waiting_now=0.4))) == []


@pytest.mark.parametrize(
    ("objective", "field"),
    [
        ("ttft_p50_ms", "ttft_p50_s"),
        ("ttft_p95_ms", "ttft_p95_s"),
        ("tpot_p50_ms", "tpot_p50_s"),
        ("tpot_p95_ms", "tpot_p95_s"),
    ],
)
def test_each_objective_is_missed_by_its_own_statistic_alone(objective: str, field: str) -> None:
    slo = replace(Slo(), **dict[str, Any]({objective: 100.0}))
    line = replace(CHAT, ttft_p50_s=0.01, ttft_p95_s=0.01, tpot_p50_s=0.01, tpot_p95_s=0.01)
    slow, unmeasured = (replace(line, **dict[str, Any]({field: value})) for value in (0.2, None))
    assert kinds(report_of(line), slo=slo) == []
    assert kinds(report_of(slow), slo=slo) == [TroubleKind.MISSED]
    assert slo_ratios(unmeasured, slo) == {}


def dearer(changed_ts: int = 100) -> Verdict:
    change = Verdict(CHAT.deployment_id, 9, 7, changed_ts, "chat on gpu-a", (Edit("deployment", 8, "tp", 1, 2),))
    return replace(change, created_ts=200, judgement=Judgement(VerdictResult.DEARER, (0.1, 0.25, 0.4)))


def test_a_regression_costs_what_it_adds_and_ends_with_the_next_change() -> None:
    (trouble,) = troubles(report_of(replace(CHAT, nano_usd_per_hour=5_000)), [dearer()], no_objective)
    assert trouble.kind is TroubleKind.REGRESSED and trouble.nano_usd_per_hour == 1_000
    assert "tp" in trouble.reason and "+25% (+10% to +40%)" in trouble.reason
    later = replace(dearer(300), judgement=Judgement(VerdictResult.PENDING))
    assert kinds(report_of(CHAT), (later, dearer())) == []


def test_a_host_that_stopped_reporting_is_one_line_with_its_dollars_and_hides_its_last_figures() -> None:
    silent = host(1, "gpu-a", age_s=600)
    (trouble,) = troubles(report_of(HUNG, hosts=(silent,)), (), no_objective)
    paid = sum(line.nano_usd_per_hour or 0 for line in RICH.devices if line.host == "gpu-a")
    assert trouble.kind is TroubleKind.SILENT and trouble.target == "gpu-a" and trouble.nano_usd_per_hour == paid
    many = tuple(host(n, f"gpu-{n}", age_s=600 + n) for n in range(9))
    (together,) = troubles(report_of(hosts=many), (), no_objective)
    assert together.target == "gpu-0, gpu-1 and 7 more" and together.nano_usd_per_hour is None


@pytest.mark.parametrize(
    "ended",
    [
        replace(host(1, "gpu-a", age_s=600), imported=True),
        replace(host(1, "gpu-a", age_s=600), generated=True),
        host(1, "gpu-a", age_s=None),
        host(1, "gpu-a", age_s=MAX_SILENT_S),
    ],
    ids=["imported", "a demo", "never read", "retired"],
)
def test_a_host_without_an_agent_that_ran_lately_lost_nothing(ended: Any) -> None:
    assert kinds(report_of(hosts=(ended,))) == []


def test_a_lost_price_names_the_command_that_sets_it() -> None:
    (trouble,) = troubles(report_of(lost_prices=(LostPrice("NVIDIA L4", 2, 1_600),)), (), no_objective)
    assert trouble.kind is TroubleKind.UNPRICED and trouble.nano_usd_per_hour == 1_600
    assert trouble.command == 'pertoken prices set DOLLARS --for "NVIDIA L4"'


def test_an_alert_is_listed_from_its_firing_to_its_end() -> None:
    body = json.dumps({"figure": "stuck", "operator": ">", "limit": 0, "value": 1.0})

    def stored(state: str) -> Any:
        return SimpleNamespace(name="hung", target="service=chat", state=state, body=body)

    for state in ("FIRING", "CLEARING"):
        (trouble,) = troubles(report_of(), (), no_objective, [stored(state)])
        assert trouble.kind is TroubleKind.ALERT and trouble.reason == "hung: stuck is 1 engines (limit > 0)"
    assert troubles(report_of(), (), no_objective, [stored("PENDING")]) == ()


def test_a_default_alert_is_not_listed_beside_the_trouble_that_it_repeats() -> None:
    def stored(name: str, figure: str) -> Any:
        body = json.dumps({"figure": figure, "operator": ">", "limit": 0, "value": 1.0})
        return SimpleNamespace(name=name, target="fleet", state="FIRING", body=body)

    assert troubles(report_of(), (), no_objective, [stored("stuck", "stuck")]) == ()
    for alert in (stored("stuck", "waiting"), stored("over-budget", "budget_expected_share")):
        (trouble,) = troubles(report_of(), (), no_objective, [alert])
        assert trouble.kind is TroubleKind.ALERT, "of the same name, but of another figure; or of no other trouble"


def test_outages_come_first_and_of_one_kind_the_dearest() -> None:
    cheap, dear = replace(HUNG, nano_usd_per_hour=1), replace(HUNG, nano_usd_per_hour=2, deployment_id=99)
    waiting = replace(CHAT, waiting_now=400.0, nano_usd_per_hour=9)
    lines = troubles(report_of(waiting, cheap, dear), (), no_objective)
    assert [(line.kind.value, line.nano_usd_per_hour) for line in lines] == [
        ("stuck", 2),
        ("stuck", 1),
        ("saturated", 9),
    ]


def test_a_trouble_names_the_advice_that_mends_it_and_no_other() -> None:
    restart = replace(FP8, title="restart", edits=(Edit("deployment", 7, "restart", False, True),), saving=None)
    faster, restarting = row(), row(rule_id="any", recommendation_id=5, variants=(restart,))
    back = row(rule_id=GO_BACK, recommendation_id=6, variants=(replace(FP8, throughput_ratio=None),))
    (hung,) = (replace(line, deployment_id=7) for line in troubles(report_of(HUNG), (), no_objective))
    for kind, mending in (
        (TroubleKind.STUCK, restarting),
        (TroubleKind.SATURATED, faster),
        (TroubleKind.REGRESSED, back),
    ):
        (line,) = with_commands([replace(hung, kind=kind)], (back, faster, restarting))
        assert line.command == f"pertoken advise show {short_id(mending)}"
    (unmended,) = with_commands([hung], (faster, back))
    assert unmended.command == hung.command
    (unconfirmed,) = with_commands([hung], (replace(restarting, unconfirmed="blocked"),))
    assert unconfirmed.command == hung.command


def test_troubles_are_judged_by_the_last_hour_whatever_window_is_shown(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=END)
    strict = Slo(tpot_p95_ms=0.001)
    body = json.dumps({"figure": "waiting", "operator": ">", "limit": 5, "value": None})
    alert = {"name": "queue", "target": "fleet", "state": "FIRING", "since_ts": END, "seen_ts": END, "body": body}
    with AdviceRepository(where).writing() as connection:
        repository.put_alert(connection, alert)
    store = open_store(where)
    reports = (fleet_report(store, window_s, END) for window_s in (HOUR, 7 * 86_400))
    first, second = (with_troubles(report, store, lambda _: strict).troubles for report in reports)
    assert first == second
    assert [line.kind for line in first] == [TroubleKind.MISSED, TroubleKind.ALERT]
    assert first[1].reason == "queue: waiting is not known now (limit > 5)" and first[1].nano_usd_per_hour is None
    past = with_troubles(fleet_report(store, HOUR, END, dated=True), store, lambda _: strict, END)
    assert [line.kind for line in past.troubles] == [TroubleKind.MISSED]  # states of alerts are those of the present


def test_a_price_that_ended_is_lost_and_one_that_never_was_is_not(tmp_path: Path) -> None:
    unpriced = seed(tmp_path / "never", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=30, end_ts=END)
    assert fleet_report(open_store(unpriced), HOUR, END).lost_prices == ()
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=END)
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            read_seq=read_prices(where, END).seq,
            selector="H100",
            nano_usd_per_device_hour=None,
            from_ts=END - 60,
            set_ts=END - 60,
            set_by="ops",
            note=None,
        )
    (lost,) = fleet_report(open_store(where), HOUR, END).lost_prices
    assert lost.devices == 2 and lost.nano_usd_per_hour == 13_760_000_000


def test_outputs_that_a_change_altered_are_a_trouble_of_its_deployment() -> None:
    judged = Judgement(
        VerdictResult.OUTPUT_CHANGED, (-0.3, -0.2, -0.1), "outputs are terser: mean length of outputs 200 → 90"
    )
    (line,) = troubles(report_of(CHAT), [replace(dearer(), judgement=judged)], no_objective)
    assert (line.kind, line.command) == (TroubleKind.OUTPUT, "pertoken advise")
    assert line.reason == "since its tp changed, outputs are terser: mean length of outputs 200 → 90"
