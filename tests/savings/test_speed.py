"""Money of a doubtful forecast: in no total, and shown as a break-even with the reason."""

from dataclasses import replace

import pytest

from pertoken.forecast.calibration import MAX_SURPRISE
from pertoken.forecast.host import Calibration
from pertoken.savings.estimate import Estimate
from pertoken.savings.speed import MAX_HIGH_OVER_LOW, doubt, speed
from pertoken.state.deployment import Placement
from pertoken.state.service import Slo
from tests.savings.fleets import FOUR, ONE, chat, context, low_batch, priced, slow_host

ODD = "times the speed it expects, so something unknown is at work"
WIDE = "the forecast is doubtful: its 80 % interval is"


def held_back(estimate: Estimate, reason: str) -> bool:
    return (
        (estimate.net, estimate.capacity) == (None, None)
        and reason in (estimate.to_confirm or "")
        and "if the forecast holds" in (estimate.break_even or "")
    )


def test_a_host_that_runs_unlike_the_model_banks_nothing() -> None:
    proposal = chat(FOUR).but(weight_dtype="fp8").resized()
    usual = priced(FOUR, proposal)
    assert usual.net is not None and usual.net[1] > 0 and usual.unpriced is None
    assert held_back(priced(FOUR, proposal, seen=slow_host(20)), ODD)


def test_replicas_that_such_a_host_seems_not_to_need_are_not_banked() -> None:
    usual = priced(FOUR, chat(FOUR).resized())
    assert usual.net is not None and usual.net[1] > 0
    assert held_back(priced(FOUR, chat(FOUR).resized(), seen=slow_host(20)), ODD)


def test_a_kind_of_change_that_nobody_measured_is_no_money() -> None:
    """One pair was measured of chunked prefill: its interval holds half and twice of what is likely."""
    (present,) = chat(ONE).deployments
    whole = replace(ONE, services=(replace(chat(ONE), deployments=(replace(present, enable_chunked_prefill=False),)),))
    estimate = priced(whole, chat(whole).but(enable_chunked_prefill=True), seen=low_batch(running=4, prompt_len=200))
    assert estimate.throughput_ratio is not None and estimate.throughput_ratio[1] > 1
    assert estimate.throughput_ratio[2] > MAX_HIGH_OVER_LOW * estimate.throughput_ratio[0]
    assert held_back(estimate, WIDE)


def test_doubt_follows_the_host_and_the_interval_unless_the_change_was_verified() -> None:
    usual, odd = Calibration(log_time=0.99 * MAX_SURPRISE), Calibration(log_time=-1.01 * MAX_SURPRISE)
    assert doubt(usual) is None and doubt(usual, (0.6, 1.2, 2.4)) is None
    assert (doubt(usual, (0.59, 1.2, 2.4)) or "").startswith(f"{WIDE} 0.59 to 2.4 times the tokens/s")
    assert f"this host runs at 2.2 {ODD}" in (doubt(odd) or "")
    assert doubt(odd, (0.1, 1, 9), verified=True) is None


OVERLOADED = {
    "generated_tok_s": 4000.0,
    "busy_generated_tok_s": 4000.0,
    "prompt_tok_s": 16000.0,
    "requests_s": 10.0,
    "busy": 1.0,
    "running": 256.0,
    "waiting": 90.0,
    "tpot_s": 0.064,
    "ttft_s": 30.0,
}
"""More than the forecast of its deployment serves, and requests that wait."""
TIGHT = Slo(ttft_p95_ms=1500.0, tpot_p95_ms=50.0)


def test_a_change_that_improves_an_overloaded_service_is_not_refused_and_its_rest_is_stated() -> None:
    estimate = priced(ONE, chat(ONE).but(weight_dtype="fp8"), seen=low_batch(**OVERLOADED), slo=TIGHT)
    assert estimate.infeasible is None and estimate.unpriced is None
    assert estimate.slo in ("near_miss", "fail")
    assert any("30000 ms measured now" in reason or "64 ms measured now" in reason for reason in estimate.against)


def test_a_change_that_makes_an_overloaded_service_slower_is_refused() -> None:
    moved = chat(ONE).on(Placement(accelerator="L40S")).but(weight_dtype="fp8")
    estimate = priced(ONE, moved, seen=low_batch(**OVERLOADED), slo=TIGHT)
    assert estimate.infeasible is not None


def test_a_demand_that_is_held_now_counts_as_held_against_its_forecast() -> None:
    """The present would be refused by the same words."""
    calm = low_batch(**{**OVERLOADED, "waiting": 0.0, "ttft_s": 0.4, "generated_tok_s": 40_000.0})
    estimate = priced(ONE, chat(ONE).but(weight_dtype="fp8"), seen=calm)
    assert "would not hold the demand" not in (estimate.infeasible or "")


def test_an_overload_that_stays_is_stated_as_a_share_of_what_is_served() -> None:
    estimate = priced(
        ONE,
        chat(ONE).but(weight_dtype="fp8"),
        seen=low_batch(**{**OVERLOADED, "requests_s": 10.0, "generated_tok_s": 40_000.0}),
    )
    stays = [reason for reason in estimate.against if "it stays overloaded" in reason]
    assert len(stays) == 1 and stays[0].endswith("% now")


def test_a_good_change_is_judged_by_the_measured_latency_and_not_by_a_high_forecast() -> None:
    """The forecast has TTFT p95 above the objective before the change too; 60 ms are measured."""
    seen = low_batch(ttft_s=0.06)
    fp8 = chat(ONE).but(weight_dtype="fp8")
    slo = Slo(ttft_p95_ms=100.0)
    assert priced(ONE, fp8, seen=seen, slo=slo).slo in ("pass", "near_miss")
    assert priced(ONE, fp8, seen=low_batch(ttft_s=0.4), slo=slo).slo == "fail"


def test_a_bad_change_is_judged_by_the_measured_latency_and_not_by_a_low_forecast() -> None:
    narrow = chat(ONE).on(Placement(accelerator="L40S")).but(weight_dtype="fp8")
    seen = [low_batch(tpot_s=0.028, ttft_s=0.3), low_batch(tpot_s=0.06, ttft_s=0.3)]
    low, high = (priced(ONE, narrow, seen=one, slo=Slo(tpot_p95_ms=500.0)).latency for one in seen)
    assert low is not None and high is not None
    assert low.after is not None and low.after.tpot_p95_ms is not None
    assert high.after is not None and high.after.tpot_p95_ms is not None
    assert low.before is not None and low.before.tpot_p95_ms == (28.0, 28.0, 28.0)
    assert high.before is not None and high.before.tpot_p95_ms == (60.0, 60.0, 60.0)
    assert high.after.tpot_p95_ms[1] > 1.3 * low.after.tpot_p95_ms[1]


@pytest.mark.parametrize("slo", [Slo(ttft_p95_ms=5000.0), Slo(ttft_p50_ms=5000.0, tpot_p95_ms=100.0)])
def test_without_a_measured_latency_the_verdict_is_unknown_and_names_it(slo: Slo) -> None:
    estimate = priced(ONE, chat(ONE).but(weight_dtype="fp8"), seen=low_batch(), slo=slo)
    assert estimate.slo == "unknown" and any("was not measured" in reason for reason in estimate.against)


def test_a_refused_speed_keeps_the_calibration_of_its_deployment() -> None:
    known = context(ONE, low_batch(ttft_s=0.3))
    (now,) = chat(ONE).deployments
    refused = speed(
        now,
        now.on(Placement(accelerator="L40S")).but(weight_dtype="fp8"),
        Slo(tpot_p95_ms=1.0),
        known,
    )
    assert refused.infeasible is not None and not refused.known
    assert refused.calibration is not None and refused.calibration.measured
