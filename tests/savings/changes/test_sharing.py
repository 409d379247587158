"""Engines that come to share a device."""

from typing import Any

import pytest

from pertoken.evidence import Evidence
from pertoken.savings.estimate import Estimate, estimate
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from tests.deployments import model
from tests.savings.fleets import context, fleet_of, host, llama, low_batch, usd_month

SMALL: dict[str, Any] = {"model": model("Llama-3.1-8B"), "max_model_len": 4096}
QUIET = low_batch(
    busy=0.15, generated_tok_s=20, busy_generated_tok_s=130, running=1.2, tpot_s=0.009, ttft_s=0.06, kv_use=0.02
)
LOOSE = Slo(ttft_p95_ms=2000.0, tpot_p95_ms=60.0)


def apart(slo: Slo = LOOSE, **code: Any) -> Fleet:
    services = [
        Service("chat", (llama(1, (10,), **SMALL),), slo=slo),
        Service("code", (llama(2, (20,), "code", **SMALL),), slo=slo, **code),
    ]
    return fleet_of(services, [host(1, 1), host(2, 1)])


def shared(fleet: Fleet, seen: Evidence = QUIET, memory: float = 0.45, **knobs: Any) -> Estimate:
    chat, code = (fleet.deployment(literal) for literal in (1, 2))
    after = fleet.replace(chat, chat.but(gpu_memory_utilization=memory, **knobs))
    after = after.replace(code, code.but(gpu_memory_utilization=memory, **knobs).on_devices((10,)))
    return estimate(fleet, after.release(2), context(fleet, seen))


def test_a_quiet_engine_beside_another_one_banks_the_host_that_it_leaves() -> None:
    estimate = shared(apart())
    assert estimate.infeasible is None and estimate.unpriced is None
    assert estimate.released == ("gpu-2",) and estimate.net is not None and estimate.net[1] == usd_month(6.88)
    assert any("has the time that the others leave at their p95" in assumption for assumption in estimate.assumptions)
    assert estimate.slo == "pass"


def test_each_keeps_its_objectives_in_the_time_that_the_other_leaves() -> None:
    one, three_quarters = (low_batch(**{**known(QUIET), "busy": busy}) for busy in (0.15, 0.75))
    limit = Slo(tpot_p95_ms=22.0)
    assert shared(apart(limit), one).infeasible is None
    estimate = shared(apart(limit), three_quarters)
    assert estimate.net is None and "TPOT p95 would be about" in (estimate.infeasible or "")


def known(seen: Evidence) -> dict[str, float]:
    return {name: series.mean for name, series in seen.items()}


def test_without_an_objective_tokens_may_come_a_quarter_slower() -> None:
    busy = low_batch(**{**known(QUIET), "busy": 0.3})
    estimate = shared(apart(Slo()), busy)
    assert "would come 1.4 times as slowly, and no SLO allows it" in (estimate.infeasible or "")
    assert shared(apart(Slo())).infeasible is None


@pytest.mark.parametrize(
    ("fields", "changed", "reason"),
    [
        ({"isolation": "tenant"}, {}, 'code shares no engine and no device: isolation = "tenant"'),
        ({}, {"memory": 0.6}, "would reserve 120% of one device's memory"),
        ({}, {"memory": 0.2}, "it would not start"),
    ],
)
def test_isolation_and_memory_forbid_it(fields: dict[str, Any], changed: dict[str, Any], reason: str) -> None:
    assert reason in (shared(apart(**fields), **changed).infeasible or "")


def test_engines_that_sleep_by_turns_and_unknown_memory_are_unpriced() -> None:
    fleet = apart()
    assert "does not know what sleep does" in (shared(fleet, sleep=True).unpriced or "")
    chat, code = (fleet.deployment(literal) for literal in (1, 2))
    unknown = fleet.edit(fleet.service("code")).replace(code, code.but(max_num_seqs=64).on_devices((10,)))
    assert unknown.deployment(1) == chat
    assert "would reserve 180%" in (estimate(fleet, unknown.release(2), context(fleet, QUIET)).infeasible or "")
