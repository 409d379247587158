"""Integers split in proportion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.units import apportion


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_parts_sum_to_the_total_and_follow_their_weights(total: int, weights: list[int]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    if any(weights):
        whole = sum(weights)
        assert all(abs(part * whole - total * weight) < whole for part, weight in zip(parts, weights, strict=True))


@pytest.mark.parametrize("weights", [[], [1, -1]])
def test_missing_or_negative_weights_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="weights"):
        apportion(1, weights)
