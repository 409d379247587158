"""Searches in many functions at once, beside functions whose zeros are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.forecast.candidates import Array
from pertoken.forecast.queueing import crossing

ZEROS = np.array([0.5, 3.0, 7.25, 1e-6])
LOW, HIGH = np.zeros(4), np.full(4, 10.0)


@pytest.mark.parametrize("power", [1, 2, 5])
def test_a_search_ends_where_its_function_rises_to_0(power: int) -> None:
    assert crossing(lambda at: at**power - ZEROS**power, LOW, HIGH) == pytest.approx(ZEROS, rel=1e-9)


def test_a_straight_line_takes_one_step() -> None:
    asked: list[Array] = []

    def line(at: Array) -> Array:
        asked.append(at)
        return np.asarray(3 * (at - ZEROS))

    assert crossing(line, LOW, HIGH) == pytest.approx(ZEROS, rel=1e-12)
    assert len(asked) <= 4


def test_a_row_that_crosses_zero_outside_its_range_ends_at_a_limit() -> None:
    crossings = crossing(lambda at: np.array([at[0] + 1, at[1] - 99, at[2]]), np.zeros(3), np.full(3, 10.0))
    assert crossings.tolist() == [0.0, 10.0, 0.0]


@given(st.lists(st.floats(0.01, 9.9), min_size=2, max_size=12), st.sampled_from([0.3, 1.0, 4.0]))
def test_a_row_ends_where_it_ends_alone(zeros: list[float], power: float) -> None:
    def rising(of: Array) -> Array:
        n = len(of)
        return crossing(lambda at: np.expm1((at - of) * power), np.zeros(n), np.full(n, 10.0))

    together = rising(np.array(zeros))
    assert together.tolist() == [float(rising(np.array([zero]))[0]) for zero in zeros]
