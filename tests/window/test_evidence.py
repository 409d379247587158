"""Evidence of busy time: what ran while the engine worked, and bounds of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.advisor.present import Present, present
from pertoken.catalog.market import load_market
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.evidence import Evidence, NotMeasured, OperatingPoint
from pertoken.plugins.engine.stuck_engine import stuck_engine
from pertoken.proof.troubles import stuck_s
from pertoken.provenance import Provenance
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineRow,
    EpochRow,
)
from pertoken.store.write.writer import Writer
from pertoken.testing import regime, run
from tests.agent.values import START_MS
from tests.values import HOST, new_store, tick

NOW = START_MS // 1000 + 120
ENGINE = EngineRow(7, HOST, "vllm", "http://127.0.0.1:8000", 8000, 1, 1, None, "process")
DEPLOYMENT = DeploymentRow(8, 7, HOST, "tiny", None, None)
EPOCH = EpochRow(9, 8, NOW - 3600, None, "1", "{}", (5,))
GPU = DeviceRow(5, HOST, "gpu", "GPU-5", "nvidia", "NVIDIA H100 80GB HBM3", 0)


def stored(folder: Path, *ticks: Sequence[DeploymentSample | DeviceSample | DeviceShare]) -> Present:
    """Return the present state of an engine on one GPU after minutes with these samples."""
    where = new_store(folder)
    with Writer(where) as writer:
        for n, samples in enumerate(ticks):
            ts = NOW - 60 * (len(ticks) - n)
            at = [
                sample._replace(ts=ts) if isinstance(sample, DeviceSample) else replace(sample, ts=ts)
                for sample in samples
            ]
            known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "epochs": (EPOCH,), "devices": (GPU,)}
            writer.commit(tick(ts, *at, **known))
        writer.roll_up()
    return present(open_store(where), load_market(), 60 * 35, NOW)


def recorded(folder: Path, *minutes: DeploymentSample) -> Evidence:
    """Return the evidence of the deployment."""
    (seen,) = stored(folder, *((minute,) for minute in minutes)).context.deployments.values()
    return seen


def minute(busy_ms: int | None, **more: int) -> DeploymentSample:
    known = {"busy_provenance": int(Provenance.COUNTER), **more}
    return DeploymentSample(9, 0, 60_000, 60_000, True, busy_ms, **known)


def test_running_requests_are_averaged_without_the_time_in_which_none_ran(tmp_path: Path) -> None:
    # Two requests at a time, half of each minute busy: 1.0 on average over the minute.
    seen = recorded(
        tmp_path, *[minute(30_000, generated_tokens=3_000, running_1e2=100, kv_use_1e4=1_000)] * 10, *[minute(0)] * 10
    )
    assert seen.busy.mean == pytest.approx(0.25)
    assert seen.busy_generated_tok_s.mean == pytest.approx(100)
    assert seen.running.mean == pytest.approx(2.0)
    assert seen.kv_use.mean == pytest.approx(0.2)
    assert (seen.busy.provenance, seen.busy_generated_tok_s.provenance) == (Provenance.COUNTER, Provenance.COUNTER)


def test_requests_of_a_minute_count_though_their_time_falls_into_the_next(tmp_path: Path) -> None:
    running, counted = minute(0, running_1e2=100), minute(60_000, generated_tokens=600, running_1e2=0)
    seen = recorded(tmp_path, *[running, counted] * 5)
    assert seen.running.mean == pytest.approx(1.0)


def test_evidence_from_busy_time_that_is_an_upper_bound_is_marked_as_one(tmp_path: Path) -> None:
    bound = int(Provenance.BOUND)
    seen = recorded(tmp_path, minute(30_000, generated_tokens=300), minute(6_000, busy_provenance=bound))
    assert (seen.busy.provenance, seen.busy_generated_tok_s.provenance) == (Provenance.BOUND, Provenance.BOUND)


def test_a_minute_in_which_an_engine_worked_but_exposed_no_time_may_have_been_busy_throughout(tmp_path: Path) -> None:
    unknown = minute(None, busy_provenance=int(Provenance.BOUND))
    seen = recorded(tmp_path / "some", minute(0), unknown)
    assert (seen.busy.mean, seen.busy.provenance) == (0.5, Provenance.BOUND)
    with pytest.raises(NotMeasured):
        _ = recorded(tmp_path / "all", unknown, unknown).busy


def test_a_quantile_is_the_first_value_that_reaches_its_share_of_the_time(tmp_path: Path) -> None:
    # Of 20 minutes 10 reach a half exactly, 19 reach 95 %.
    waiting = [*[100] * 10, *[200] * 9, 900]
    seen = recorded(tmp_path, *(minute(60_000, waiting_1e2=count) for count in waiting))
    assert (seen.waiting.p50, seen.waiting.p95, seen.waiting.max) == (1.0, 2.0, 9.0)


def test_steady_minutes_are_operating_points_and_asking_for_them_is_not_reading_a_series(tmp_path: Path) -> None:
    usual = {"generated_tokens": 3_000, "prompt_tokens": 6_000, "requests_finished": 10}
    seen = recorded(tmp_path, *(minute(60_000, running_1e2=100 * n, **usual) for n in (1, 2, 4, 8)))
    points = seen.fresh().operating_points()
    assert [point.running for point in points] == [1, 2, 4, 8]
    assert {(point.prompt_len, point.generated_len) for point in points} == {(600, 300)}
    assert seen.read == ()
    probed = OperatingPoint(0, 16, 0.02, 100, 100, probed=True)
    assert seen.with_points([probed]).fresh().operating_points() == (probed, *points)


@pytest.mark.parametrize(
    ("minutes", "stuck_min"),
    [
        ([(90, 2)] * 3 + [(0, 2)] * 5, 5),
        ([(90, 2)] * 3 + [(0, 2)] * 4, 0),
        ([(0, 2)] * 6, 6),
        ([(0, 2)] * 6 + [(0, 0)], 0),
        ([(0, 2)] * 6 + [(90, 2)], 0),
        ([(90, 0)] + [(0, 0)] * 9, 0),
    ],
)
def test_an_engine_is_stuck_from_five_minutes_after_its_last_token_while_it_has_requests(
    minutes: list[tuple[int, int]], stuck_min: float, tmp_path: Path
) -> None:
    requests = {"prompt_tokens": 0, "waiting_1e2": 0}
    samples = (minute(0, generated_tokens=tokens, running_1e2=100 * running, **requests) for tokens, running in minutes)
    assert recorded(tmp_path, *samples).stuck_h.mean == pytest.approx(stuck_min / 60)


@pytest.mark.parametrize(("silent_min", "stuck"), [(3, False), (6, True)])
def test_the_rule_restarts_what_the_list_of_troubles_calls_stuck(silent_min: int, stuck: bool, tmp_path: Path) -> None:
    rates = [90] * 3 + [0] * silent_min
    samples = (minute(0, generated_tokens=tokens, prompt_tokens=0, running_1e2=200) for tokens in rates)
    state = stored(tmp_path, *((sample,) for sample in samples))
    (line,) = fleet_report(open_store(locate(str(tmp_path))), 3600, NOW).deployments
    assert (stuck_s(line, 3600) is not None) is stuck
    (served,) = state.fleet.services
    result = run(stuck_engine, regime(state.fleet, {served.name: state.context.evidence(8)}))
    assert [proposed.diff.of("deployment", 8) for proposed in result.proposals] == [{"restart": (False, True)}] * stuck
