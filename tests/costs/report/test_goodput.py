"""Requests inside the SLO, by hand: exact at bounds of buckets, a range inside one."""

import pytest

from pertoken.costs.report.lines import GoodShare, Histogram, good_share, share_within
from pertoken.state.service import Slo

TTFT: Histogram = {(0.1, 0.2, 0.5): [50, 30, 15, 5]}
TPOT: Histogram = {(0.02, 0.05): [60, 30, 10]}


def test_a_limit_at_a_bound_of_a_bucket_is_exact_and_one_inside_a_bucket_is_a_range() -> None:
    assert share_within(TTFT, 0.2) == (0.8, 0.8)
    assert share_within(TTFT, 0.3) == (0.8, 0.95)
    assert share_within(TTFT, 9) == (0.95, 1.0), "the last bucket has no end"
    assert share_within({}, 1) is None and share_within({(0.1,): [0, 0]}, 1) is None
    assert share_within({**TTFT, (0.2,): [0, 100]}, 0.2) == (0.4, 0.4), "an engine changed its bounds"


def test_two_objectives_may_be_missed_by_the_same_requests_or_by_different_ones() -> None:
    share = good_share(Slo(ttft_p95_ms=200, tpot_p95_ms=50), TTFT, TPOT, "tgi")
    assert share.low == pytest.approx(0.7) and (share.high, share.reason) == (0.8, None)
    assert good_share(Slo(ttft_p95_ms=100, tpot_p95_ms=20), {(0.1,): [30, 70]}, TPOT, "tgi").low == 0


def test_a_figure_without_histograms_is_unknown_with_its_reason() -> None:
    assert good_share(Slo(), TTFT, TPOT, "vllm").reason is not None
    by_token = good_share(Slo(ttft_p95_ms=200, tpot_p95_ms=50), TTFT, TPOT, "vllm")
    assert by_token.low is None and "between tokens, not of requests" in (by_token.reason or "")
    assert good_share(Slo(ttft_p95_ms=200), {}, TPOT, "llama.cpp") == GoodShare(
        None, None, "its engine has no histogram of TTFT"
    )
