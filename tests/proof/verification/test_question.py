"""The week that hours are compared within."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.proof.verification.question import Cycle, EventKind, Promise
from pertoken.window.series import hour_of_week


@given(st.integers(0, 4_000_000_000))
def test_the_phase_of_an_hour_is_the_hour_of_the_week(ts: int) -> None:
    assert Cycle().phase(np.array([ts])) == hour_of_week(ts)


def test_a_compressed_week_keeps_the_parts_of_a_week() -> None:
    week = Cycle(bucket_s=5, buckets=28)
    assert week.week_s == 140
    assert [week.buckets_of(days) for days in (0.25, 2, 7, 21)] == [1, 8, 28, 84]
    assert week.phase(np.array([140 * 1000, 140 * 1000 + 5]))[1] == 1 + week.phase(np.array([140 * 1000]))[0]


def test_a_price_splits_no_window_and_a_driver_does() -> None:
    assert not EventKind.PRICE.splits
    assert EventKind.DRIVER.splits


def test_a_promise_that_does_not_rise_is_refused() -> None:
    with pytest.raises(ValueError, match="rises from low to high"):
        Promise(0.2, 0.1, 0.3)
