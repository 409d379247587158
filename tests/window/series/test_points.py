"""Observations of one series: weighted quantiles, hours of the week and slices of a window."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.provenance import Provenance
from pertoken.window.series import Points, weighted


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1000)), min_size=1, max_size=20),
    st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]),
)
def test_a_weighted_quantile_leaves_at_most_its_share_below(pairs: list[tuple[float, int]], q: float) -> None:
    values, weights = np.array([v for v, _ in pairs]), np.array([float(w) for _, w in pairs])
    points = weighted(np.arange(len(pairs)), values, weights, Provenance.COUNTER)
    total = sum(weight for _, weight in pairs)
    if not total:
        assert points is None
        return
    assert points is not None
    at = points.quantile(q)
    assert sum(weight for value, weight in pairs if value < at) <= q * total * (1 + 1e-12)
    assert sum(weight for value, weight in pairs if value <= at) >= q * total * (1 - 1e-12)
    short = points.summary()
    assert math.isfinite(short.mean)
    assert (short.p50, short.p95) == (points.quantile(0.5), points.quantile(0.95))


def test_a_slice_is_the_weighted_mean_of_its_buckets_up_to_the_highest_value() -> None:
    ts, values = np.array([0, 60, 120, 300]), np.array([1.0, 3.0, 4.0, 9.0])
    points = Points(ts, values, np.array([1.0, 3.0, 1.0, 1.0]), Provenance.COUNTER, factor=2, highest=10)
    assert points.slices(0, 120, 3) == (5.0, 8.0, 10.0)
    assert points.slices(60, 60, 3) == (6.0, 8.0, None)


def test_slices_without_a_bucket_are_not_known() -> None:
    points = Points(np.array([600]), np.array([1.0]), np.array([1.0]), Provenance.COUNTER)
    assert points.slices(0, 60, 2) == (None, None)


@pytest.mark.parametrize("day", [0, 7])
def test_an_hour_of_the_week_is_that_of_every_week(day: int) -> None:
    points = Points(np.array([day * 86_400]), np.array([2.0]), np.array([1.0]), Provenance.COUNTER)
    hours = points.hours()
    assert [n for n, value in enumerate(hours) if value is not None] == [72]
