"""Busy dollars by kind of token: exact sums, and bounds where the work of requests overlaps."""

from hypothesis import given
from hypothesis import strategies as st

from pertoken.costs.ledger import EQUAL, NO_TIMES, KindDollars, TokenWeights, split, token_weights

_MS = st.none() | st.integers(0, 10**12)
_WORK = st.fixed_dictionaries({"busy_ms": _MS, "split_ms": _MS, "prefill_ms": _MS, "decode_ms": _MS})
_NANO = st.integers(0, 10**16)


@given(busy=_NANO, idle=_NANO, work=_WORK)
def test_kinds_sum_to_the_dollars_and_lie_within_their_bounds(
    busy: int, idle: int, work: dict[str, int | None]
) -> None:
    kinds = split(busy, idle, work)
    assert kinds.busy == busy and kinds.idle == idle and kinds.total == busy + idle
    assert min(kinds.prefill, kinds.cached, kinds.decode, kinds.unsplit, kinds.overlapped, kinds.decode_low) >= 0
    for dollars, (low, high) in ((kinds.decode, kinds.decode_range), (kinds.prefill, kinds.prefill_range)):
        assert low - 2 <= dollars <= high + 2


def test_dollars_follow_the_time_of_prefill_and_decode_and_the_remainder_is_of_cached_tokens() -> None:
    work = {"busy_ms": 1000, "split_ms": 1000, "prefill_ms": 300, "decode_ms": 600}
    assert split(10_000, 500, work) == KindDollars(3000, 1000, 6000, 0, 500, 0, 6000)


def test_time_that_may_be_either_is_divided_in_proportion_with_its_bounds() -> None:
    kinds = split(10_000, 0, {"busy_ms": 1000, "split_ms": 1000, "prefill_ms": 500, "decode_ms": 1000})
    assert (kinds.prefill, kinds.decode, kinds.cached) == (3333, 6667, 0)
    assert kinds.decode_range == (5000, 10_000) and kinds.prefill_range == (0, 5000)


def test_busy_time_of_engines_that_count_no_kinds_is_not_split() -> None:
    assert split(700, 300, {"busy_ms": 1000}) == KindDollars(unsplit=700, idle=300)
    half = split(1000, 0, {"busy_ms": 1000, "split_ms": 500, "prefill_ms": 100, "decode_ms": 400})
    assert (half.prefill, half.decode, half.unsplit, half.split_share) == (100, 400, 500, 0.5)
    assert split(1000, 0, {"busy_ms": 1000, "split_ms": 400, "prefill_ms": 400, "decode_ms": 0}).split_share == 0


def test_a_model_that_generates_nothing_computes_prompts_all_the_time() -> None:
    assert split(700, 300, {"busy_ms": 5, "prompt_tokens": 10, "generated_tokens": 0}) == KindDollars(700, idle=300)


def test_tokens_weigh_what_their_kind_costs() -> None:
    dollars = split(10_000, 0, {"busy_ms": 1000, "split_ms": 1000, "prefill_ms": 300, "decode_ms": 600})
    counts = {"prompt_tokens": 400, "cached_tokens": 300, "generated_tokens": 60}
    weights = token_weights(dollars, counts)
    assert isinstance(weights, TokenWeights)
    assert weights == (3000 * 10**7, 1000 * 10**9 // 300, 10**11, 4000 * 10**9 // 400)
    assert weights.of_prompts[:2] == (10**10, 10**10)
    assert token_weights(split(10, 0, {}), counts) == token_weights(None, counts) == NO_TIMES
    assert EQUAL == (1, 1, 1, 1)
