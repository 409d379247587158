import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.arrivals import (
    POINTS,
    Arrivals,
    Lengths,
    fixed,
    from_buckets,
    from_quantiles,
    from_sample,
    mixed,
    typical,
)
from tests.examples import examples


def test_the_conversation_trace_keeps_its_published_quantiles() -> None:
    prompt, generated = typical("conversation")
    assert np.quantile(prompt.tokens, 0.5) == pytest.approx(1020, rel=0.1)
    assert np.quantile(generated.tokens, 0.5) == pytest.approx(129, rel=0.25)
    assert generated.mean == pytest.approx(211, rel=0.05)


def test_a_shape_scales_to_the_mean_that_was_measured() -> None:
    prompt, _ = typical("code")
    scaled = prompt.scaled_to(500)
    assert scaled.mean == pytest.approx(500, rel=0.02)
    assert scaled.tokens[-1] / scaled.tokens[8] == pytest.approx(prompt.tokens[-1] / prompt.tokens[8], rel=0.02)
    with pytest.raises(ValueError, match="above 0"):
        prompt.scaled_to(0)


def test_a_histogram_of_one_bucket_stays_inside_it() -> None:
    lengths = from_buckets([100, 200, math.inf], [0, 7, 0])
    assert lengths.tokens.min() >= 100 and lengths.tokens.max() <= 200


def test_a_histogram_without_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one request"):
        from_buckets([100], [0])


def test_quantiles_that_fall_are_refused() -> None:
    with pytest.raises(ValueError, match="rise"):
        from_quantiles([0, 0.5, 1], [10, 5, 20])


def test_a_sequence_with_a_long_answer_is_seen_more_often() -> None:
    """Answers of 100 and 300, equally many: tokens seen are E[100² , 300²] / (2 x 200) = 125, not half of 200."""
    answers = Lengths(np.repeat([100.0, 300.0], POINTS // 2))
    assert Arrivals(1.0, fixed(1000), answers).context == pytest.approx(1000 + 125)


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=200))
def test_a_distribution_keeps_the_mean_and_range_of_its_sample(seen: list[float]) -> None:
    lengths = from_sample(seen)
    assert len(lengths.tokens) == POINTS
    assert np.all(np.diff(lengths.tokens) >= 0)
    assert min(seen) * (1 - 1e-9) <= lengths.tokens[0] and lengths.tokens[-1] <= max(seen) * (1 + 1e-9)
    if len(seen) % POINTS == 0:
        assert lengths.mean == pytest.approx(np.mean(seen))


@settings(max_examples=examples(50))
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=12).filter(lambda counts: sum(counts) > 0))
def test_any_histogram_gives_rising_lengths_within_its_bounds(counts: list[float]) -> None:
    upper = [float(2**place) for place in range(len(counts) - 1)] + [math.inf]
    lengths = from_buckets(upper, counts)
    assert np.all(np.isfinite(lengths.tokens)) and np.all(np.diff(lengths.tokens) >= 0)
    assert lengths.tokens[0] >= 1 and lengths.tokens[-1] <= 2 ** len(counts)


def test_requests_of_two_services_mix_in_proportion_to_their_rates() -> None:
    short, long = Arrivals(3.0, fixed(100), fixed(10)), Arrivals(1.0, fixed(1000), fixed(50))
    both = mixed([short, long])
    assert both.requests_per_s == 4.0
    assert both.prompt.mean == pytest.approx(325, rel=0.05) and both.generated.mean == pytest.approx(20, rel=0.05)
    with pytest.raises(ValueError, match="no request arrives"):
        mixed([Arrivals(0.0, fixed(1), fixed(1))])
