"""Hours on a regular grid."""

import numpy as np

from pertoken.proof.verification.baseline import grid_of
from pertoken.proof.verification.question import Covariate, Cycle
from pertoken.window.like_for_like import HourlyOutcomes

HOURS = HourlyOutcomes(
    ts=np.array([3600, 7200, 14_400]),
    device_s_per_token=np.array([1.0, np.e, 1.0]),
    tokens_per_s=np.array([1.0, 10.0, 100.0]),
    generated_share=np.array([0.5, 0.5, 0.5]),
    cached_share=None,
)


def test_a_missing_hour_is_not_known() -> None:
    made = grid_of(HOURS, 0, 18_000, Cycle())
    assert made.known.tolist() == [False, True, True, False, True]
    assert made.cost.tolist() == [0, 0, 1, 0, 0]


def test_hours_outside_are_left_out() -> None:
    assert grid_of(HOURS, 7200, 10_800, Cycle()).known.tolist() == [True]


def test_a_cached_share_that_is_not_measured_is_no_covariate() -> None:
    assert set(grid_of(HOURS, 0, 18_000, Cycle()).columns) == {Covariate.LOAD, Covariate.MIX}


def test_a_figure_that_the_change_alters_is_no_covariate() -> None:
    made = grid_of(HOURS, 0, 18_000, Cycle(), frozenset({Covariate.LOAD}))
    assert made.columns == (Covariate.MIX,)
    assert made.mean(made.known).tolist() == [0.0]
