"""Effects as savings, and their intervals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.proof.verification.baseline import grid_of
from pertoken.proof.verification.estimate import Effect, Estimator, Interval, proves_change, saving
from pertoken.proof.verification.question import Cycle
from tests.proof.histories import CHANGED, UNTIL, history
from tests.window.test_like_for_like import MONDAY


def test_a_log_ratio_below_0_is_a_saving() -> None:
    interval = saving(Effect(math.log(0.9), 0.01, 20), 0.02)
    assert (interval.low, interval.likely, interval.high) == pytest.approx(
        (1 - 0.9 * math.exp(0.02), 0.1, 1 - 0.9 / math.exp(0.02))
    )


@given(st.floats(-1, 1), st.floats(0.001, 0.2), st.floats(1, 100))
def test_the_80_percent_interval_lies_within_that_of_90(log_ratio: float, error: float, degrees: float) -> None:
    effect = Effect(log_ratio, error, degrees)
    assert effect.half_width_80 < effect.half_width_90
    assert effect.widened(2).half_width_90 == pytest.approx(2 * effect.half_width_90)


def test_the_scatter_that_a_restart_may_add_widens_the_interval_by_its_odds() -> None:
    alone = Effect(0.0, 0.01, 1e9)
    sometimes = Effect(0.0, 0.01, 1e9, ((0.8, 0.0), (0.2, 0.05)))
    always = Effect(0.0, 0.01, 1e9, ((0.0, 0.0), (1.0, 0.05)))
    assert alone.half_width_90 < sometimes.half_width_90 < always.half_width_90
    assert always.half_width_90 == pytest.approx(1.6449 * math.hypot(0.01, 0.05), rel=1e-3)
    assert sometimes.total_error == pytest.approx(math.sqrt(0.01**2 + 0.2 * 0.05**2))
    draws = np.random.default_rng(1).standard_normal(400_000)
    errors = np.where(np.random.default_rng(2).random(400_000) < 0.2, math.hypot(0.01, 0.05), 0.01)
    assert float((np.abs(draws * errors) <= sometimes.half_width_80).mean()) == pytest.approx(0.8, abs=0.005)
    assert float((np.abs(draws * errors) <= sometimes.half_width_90).mean()) == pytest.approx(0.9, abs=0.005)


def test_a_proven_effect_exceeds_what_a_restart_rarely_adds() -> None:
    alone, rarely = Effect(-0.1, 0.02, 1e9), Effect(-0.1, 0.02, 1e9, ((0.96, 0.0), (0.04, 0.2)))
    assert alone.half_width_99 < 2 * alone.half_width_90 < 2 * rarely.half_width_90 < 0.1 < rarely.half_width_99
    assert proves_change(alone) and not proves_change(rarely)
    assert proves_change(replace(rarely, log_ratio=-0.4))


@given(st.floats(0.001, 0.2), st.floats(1, 100))
def test_one_normal_distribution_asks_for_nothing_beside_its_interval(error: float, degrees: float) -> None:
    effect = Effect(0.0, error, degrees)
    assert effect.half_width_99 < 2 * effect.half_width_90


def test_the_half_width_is_half_of_high_minus_low() -> None:
    assert Interval(0.1, 0.15, 0.3).half_width == pytest.approx(0.1)


def test_the_effect_is_the_mean_of_what_differs_from_the_expected() -> None:
    of = grid_of(history(5, -0.1), MONDAY, UNTIL, Cycle())
    base = of.ts < CHANGED
    estimator = Estimator(of, of.cost, base)
    effect = estimator.effect(base, ~base)
    assert effect.log_ratio == pytest.approx((of.cost[~base] - estimator.predicted(base, ~base)).mean())
    assert effect.standard_error == estimator.without_effect(base, ~base).standard_error
    assert effect.log_ratio == pytest.approx(math.log(0.9), abs=3 * effect.standard_error)
