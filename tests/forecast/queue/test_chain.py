"""Searches over many rows at once."""

import numpy as np
import pytest

from pertoken.forecast.queue.chain import BISECTIONS, bisected
from pertoken.forecast.queue.load import Array


@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_halvings_decided_in_one_call_end_where_one_after_the_other_does(at_once: int) -> None:
    low, high = np.array([0.0, 1.0, 0.0]), np.array([7.0, 300.0, 1e-3])
    sought = np.array([np.e, 299.99, 1.0])[:, None]
    calls: list[int] = []

    def beyond(points: Array) -> np.typing.NDArray[np.bool_]:
        calls.append(points.shape[1])
        return points**2 < sought**2

    expected_low, expected_high = low, high
    for _ in range(BISECTIONS):
        middle = (expected_low + expected_high) / 2
        more = middle**2 < sought[:, 0] ** 2
        expected_low, expected_high = np.where(more, middle, expected_low), np.where(more, expected_high, middle)
    assert bisected(low, high, at_once, beyond).tolist() == expected_high.tolist()
    assert len(calls) == -(-BISECTIONS // at_once) and max(calls) == 2**at_once - 1
