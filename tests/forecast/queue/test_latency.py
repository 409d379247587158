"""Latency of requests at a whole deployment, and the number of replicas that hold an objective."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.calibrate import calibrate
from pertoken.arrivals import Arrivals, typical
from pertoken.catalog.market import load_market
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import Latency, LatencyQuery, latencies, overruns, utilizations
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import Range
from pertoken.state.deployment import Deployment
from tests import deployments
from tests.examples import examples
from tests.forecast.builders import latency

MARKET = load_market()
CHAT = Load(generated_tok_s=400, prompt_len=1155, generated_len=211, running=8)
PROMPT, ANSWER = typical("conversation")


def deployment(**knobs: Any) -> Deployment:
    return deployments.deployment(**{"max_num_batched_tokens": 8192, **knobs})


def under(rate: float, known: Calibration | None = None, **knobs: object) -> Latency:
    return latency(deployment(**knobs), CHAT, Arrivals(rate, PROMPT, ANSWER), known)


def ranges(latency: Latency) -> tuple[Range, Range, Range, Range]:
    four = (latency.ttft_p50_ms, latency.ttft_p95_ms, latency.tpot_p50_ms, latency.tpot_p95_ms)
    assert None not in four, latency.refusal
    return four  # type: ignore[return-value]


def test_arrivals_beyond_the_rate_of_a_full_batch_are_refused_with_both_rates() -> None:
    latency = under(1e3)
    assert latency.utilization > 1
    assert latency.refusal is not None and "1e+03 requests/s at the p95 demand" in latency.refusal
    assert latency.ttft_p95_ms is None and latency.tpot_p50_ms is None


def test_ranges_contain_the_likely_value_and_p95_is_not_below_p50() -> None:
    ttft, late, tpot, slow = ranges(under(2.0))
    for low, likely, high in (ttft, late, tpot, slow):
        assert 0 < low < likely < high
    assert late[1] >= ttft[1] and slow[1] >= tpot[1]


def test_measurements_narrow_the_present_forecast_and_a_change_widens_it_again() -> None:
    known = calibrate(deployment(), CHAT, MARKET, busy_tok_s=1000, tpot_ms=8.0)

    def width(latency: Latency) -> float:
        low, _, high = ranges(latency)[2]
        return high / low

    assert width(under(2.0, known)) < width(under(2.0))
    assert width(under(2.0, known)) < width(under(2.0, known, weight_dtype="fp8"))


def test_leaving_a_cache_that_is_read_by_slow_kernels_is_as_uncertain_as_going_there() -> None:
    a100: dict[str, Any] = {"accelerator": "A100 80GB SXM4"}
    for dtype, other_dtype in (("bf16", "fp8"), ("fp8", "bf16")):
        known = calibrate(deployment(**a100, kv_dtype=dtype), CHAT, MARKET, busy_tok_s=400)
        low, _, high = ranges(under(0.2, known, **a100, kv_dtype=other_dtype))[2]
        assert high / low > 4


def test_a_utilization_alone_is_that_of_the_latency_to_the_last_digit() -> None:
    asked = [
        LatencyQuery(deployment(tp=tp), CHAT, Arrivals(rate, PROMPT, ANSWER), Calibration())
        for tp, rate in ((1, 2.0), (2, 3.0), (1, 1e3))
    ]
    nowhere = replace(asked[0], deployment=deployment(weight_dtype="no such format"))
    *known, unknown = utilizations([*asked, nowhere], MARKET)
    assert known == [latency(query.deployment, query.load, query.arrivals).utilization for query in asked]
    assert isinstance(unknown, Abstained)
    assert isinstance(utilizations([nowhere], MARKET)[0], Abstained)


def test_a_load_near_the_capacity_is_less_certain_and_maybe_overloaded() -> None:
    calm, capacity = under(1.0), 1.0 / under(1.0).utilization
    near = under(0.97 * capacity)
    assert calm.overloaded < 0.01 < 0.2 < near.overloaded < 0.6
    _, likely, high = ranges(near)[1]
    assert high / likely > ranges(calm)[1][2] / ranges(calm)[1][1]


@pytest.mark.parametrize("share", [1 - 1e-4, 1 - 1e-6, 1 - 1e-8])
def test_ends_of_a_latency_just_below_the_capacity_are_numbers(share: float) -> None:
    at = under(2.0 * share / under(2.0).utilization)
    assert at.refusal is None and at.utilization == pytest.approx(share)
    assert all(math.isfinite(end) for figure in ranges(at) for end in figure)


def test_smaller_chunks_come_later_and_stall_others_less() -> None:
    """Sarathi-Serve (arXiv 2403.02310): TTFT is traded against the tail of TPOT."""
    whole, chunked = ranges(under(12.0)), ranges(under(12.0, max_num_batched_tokens=512))
    assert chunked[0][1] > whole[0][1]
    assert chunked[3][1] < whole[3][1]


@settings(max_examples=examples(20), deadline=None)
@given(
    share=st.floats(0.02, 0.95),
    copies=st.integers(2, 16),
    dtype=st.sampled_from(["bf16", "fp8", "int4"]),
    chunk=st.sampled_from([512, 2048, 8192]),
)
def test_latency_grows_with_the_load_so_more_copies_never_make_it_worse(
    share: float, copies: int, dtype: str, chunk: int
) -> None:
    knobs: dict[str, Any] = {"weight_dtype": dtype, "max_num_batched_tokens": chunk}
    rate = share / under(1.0, **knobs).utilization
    alone, shared = under(rate, **knobs), under(rate / copies, **knobs)
    assert shared.utilization < alone.utilization < 1 and alone.refusal is None
    for one, several in zip(ranges(alone), ranges(shared), strict=True):
        assert several[1] <= one[1] * (1 + 1e-9)


def test_an_unmeasured_load_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="above 0"):
        under(0.0)


def test_no_digit_of_a_latency_depends_on_the_other_queries_of_its_batch() -> None:
    known = calibrate(deployment(), CHAT, MARKET, busy_tok_s=1000, tpot_ms=8.0)
    asked = [
        LatencyQuery(deployment(**knobs), CHAT, Arrivals(rate, PROMPT, ANSWER), calibration)
        for knobs in ({}, {"weight_dtype": "fp8"}, {"tp": 2}, {"dp": 2}, {"enable_chunked_prefill": False})
        for rate in (0.3, 3.0, 12.0, 1e3)
        for calibration in (known, Calibration())
    ]
    assert [latencies([query], MARKET)[0] for query in asked] == latencies(asked, MARKET)
    several = [(query, limits) for query in asked for limits in ((300.0, 900.0, 12.0, 30.0), (None, 900.0, None, None))]
    assert [overruns([one], MARKET)[0] for one in several] == overruns(several, MARKET)
