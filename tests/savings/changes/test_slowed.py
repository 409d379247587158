"""Latency in a part of a device's time, and the verdict on the services that depend on it."""

from dataclasses import replace

import pytest

from pertoken.forecast.queue.latency import LatencyQuery
from pertoken.savings.changes.slowed import kept_apart, measured, present_latency, slowed, worst_verdict
from pertoken.savings.speed import calibrated
from pertoken.state.service import Slo
from tests.savings.fleets import ONE, chat, context

CONTEXT = context(ONE)
KNOWN = measured(chat(ONE).deployments[0], CONTEXT)
ASKED = LatencyQuery(
    KNOWN.deployment, KNOWN.load.load, KNOWN.arrivals, calibrated(KNOWN.deployment, KNOWN.load, CONTEXT)
)


def test_on_half_of_the_time_everything_takes_twice_as_long_and_more_waits() -> None:
    present, half = present_latency(KNOWN, CONTEXT), slowed(ASKED, 2.0, CONTEXT)
    assert slowed(ASKED, 1.0, CONTEXT) == present
    assert present.tpot_p50_ms is not None and half.tpot_p50_ms is not None
    assert half.tpot_p50_ms[1] >= 2 * present.tpot_p50_ms[1]
    assert half.utilization == pytest.approx(2 * present.utilization, rel=0.01)


def test_the_worst_of_all_services_decides_and_a_near_miss_is_held_against_it() -> None:
    latency = present_latency(KNOWN, CONTEXT)
    present = {KNOWN.deployment.deployment_id: latency}
    assert latency.tpot_p95_ms is not None
    likely = latency.tpot_p95_ms[1]
    against: list[str] = []
    near = replace(chat(ONE), slo=Slo(tpot_p95_ms=likely / 1.1))
    assert worst_verdict([near], [KNOWN.deployment], latency, present, CONTEXT, against) == ("near_miss", None)
    assert against[0].startswith("chat: TPOT p95 would be about")
    missed = replace(chat(ONE), slo=Slo(tpot_p95_ms=likely / 2))
    verdict, refusal = worst_verdict([near, missed], [KNOWN.deployment], latency, present, CONTEXT, [])
    assert verdict == "fail" and refusal is not None


def test_tenants_are_kept_apart() -> None:
    assert kept_apart([chat(ONE)]) is None
    present = replace(chat(ONE), isolation="tenant")
    assert kept_apart([chat(ONE), present]) == 'chat shares no engine and no device: isolation = "tenant"'
