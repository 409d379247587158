"""Money of a doubtful forecast: in no total, and shown as a break-even with the reason."""

from dataclasses import replace

from pertoken.forecast.host import MAX_SURPRISE, Calibration
from pertoken.savings.estimate import Estimate
from pertoken.savings.speed import MAX_HIGH_OVER_LOW, doubt
from tests.savings.fleets import FOUR, ONE, chat, low_batch, priced, slow_host

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
