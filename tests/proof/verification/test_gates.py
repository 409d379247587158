"""A baseline that does not predict, or that sees changes where none are, is not believed."""

import numpy as np
import pytest

from pertoken.proof.verification.baseline import grid_of
from pertoken.proof.verification.estimate import MIN_DATES, Estimator, HeldOut, held_out, placebo
from pertoken.proof.verification.question import Cycle
from pertoken.window.columns import Mask
from tests.proof.histories import CHANGED, UNTIL, history
from tests.window.test_like_for_like import MONDAY, WEEK_H


def estimator(seed: int, *, jumps: float = 0.0, last_week: float = 0.0) -> tuple[Estimator, Mask]:
    """Of a history whose level jumps up and down every four days, or that is dearer in the last week."""
    of = grid_of(history(seed), MONDAY, UNTIL, Cycle())
    at = np.arange(len(of))
    cost = of.cost + jumps * (at // 96 % 2) + last_week * (at >= 5 * WEEK_H)
    return Estimator(of, cost, of.ts < CHANGED), of.ts < CHANGED


def test_a_steady_baseline_predicts_its_held_out_week() -> None:
    gate = held_out(*estimator(1))
    assert gate is not None
    assert gate.passed
    assert abs(gate.nmbe) < 0.03
    assert gate.cv_rmse == pytest.approx(0.05, abs=0.03)


def test_a_week_that_the_weeks_before_do_not_predict_fails() -> None:
    gate = held_out(*estimator(1, last_week=0.3))
    assert gate is not None
    assert gate.nmbe < -0.05
    assert not gate.passed


@pytest.mark.parametrize(("nmbe", "cv_rmse"), [(0.051, 0.1), (-0.051, 0.1), (0.0, 0.31)])
def test_each_limit_counts(nmbe: float, cv_rmse: float) -> None:
    assert not HeldOut(nmbe, cv_rmse).passed


def test_a_last_week_that_was_not_measured_cannot_be_tested() -> None:
    made, base = estimator(1)
    base = base & (np.arange(len(base)) % WEEK_H < 60)
    assert held_out(made, base) is None


def test_a_steady_history_has_no_false_placebo() -> None:
    gate = placebo(*estimator(1), 162)
    assert gate.dates >= MIN_DATES
    assert (gate.false, gate.factor) == (0, 1.0)


def test_a_history_that_jumps_widens_the_interval_until_one_date_in_twenty_shows_a_change() -> None:
    made, base = estimator(1, jumps=0.4)
    # As if blocks had hidden it: noise of a steady history beside costs that jump.
    made.noise = estimator(1)[0].noise
    gate = placebo(made, base, 60)
    assert gate.false / gate.dates > 0.05
    assert gate.factor > 1
    assert gate.dates >= MIN_DATES


def test_a_history_too_short_for_placebo_dates_has_none() -> None:
    made, base = estimator(1)
    assert placebo(made, base & (np.arange(len(base)) < 2 * WEEK_H), 162).dates == 0
