"""Latency in a part of a device's time, and the verdict on the services that depend on it."""

from dataclasses import replace

import pytest

from pertoken.savings.changes.sharing import kept_apart, measured, present_latency, slowed, worst_verdict
from pertoken.state.service import Slo
from tests.savings.fleets import ONE, chat, context

CONTEXT = context(ONE)
KNOWN = measured(chat(ONE).deployments[0], CONTEXT)
PRESENT = present_latency(KNOWN, CONTEXT)


def test_on_half_of_the_time_everything_takes_twice_as_long_and_more_waits() -> None:
    whole, half = (slowed(PRESENT, PRESENT.query, factor, CONTEXT).after for factor in (1.0, 2.0))
    assert whole is not None and half is not None
    assert whole.tpot_p50_ms == PRESENT.measured["tpot_p50_ms"]
    assert half.tpot_p50_ms is not None and half.tpot_p50_ms[1] >= 2 * whole.tpot_p50_ms[1]
    assert half.utilization == pytest.approx(2 * whole.utilization, rel=0.01)


def test_the_worst_of_all_services_decides_and_a_near_miss_is_held_against_it() -> None:
    latency_of = {KNOWN.deployment.deployment_id: slowed(PRESENT, PRESENT.query, 1.1, CONTEXT)}
    against: list[str] = []
    near = replace(chat(ONE), slo=Slo(tpot_p95_ms=29.0))
    verdict, refusal = worst_verdict([near], latency_of, CONTEXT, against)
    assert verdict[0] == "near_miss" and refusal is None
    assert against[0].startswith("chat: TPOT p95 would be about 31 ms")
    missed = replace(chat(ONE), slo=Slo(tpot_p95_ms=15.0))
    verdict, refusal = worst_verdict([near, missed], latency_of, CONTEXT, [])
    assert verdict[0] == "fail" and refusal is not None


def test_without_an_objective_tokens_may_not_come_much_more_slowly() -> None:
    twice = {KNOWN.deployment.deployment_id: slowed(PRESENT, PRESENT.query, 2.0, CONTEXT)}
    verdict, refusal = worst_verdict([chat(ONE)], twice, CONTEXT, [])
    assert verdict[0] == "fail" and refusal is not None and "times as slowly, and no SLO allows it" in refusal


def test_tenants_are_kept_apart() -> None:
    assert kept_apart([chat(ONE)]) is None
    present = replace(chat(ONE), isolation="tenant")
    assert kept_apart([chat(ONE), present]) == 'chat shares no engine and no device: isolation = "tenant"'
