"""The baseline: exact without noise, linear in the costs, and honest about correlated noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.proof.verification.baseline import Fit, noise_of
from pertoken.proof.verification.grid import Grid, grid_of
from pertoken.proof.verification.question import Cycle
from tests.examples import examples
from tests.proof.histories import CHANGED, HOUR_S, UNTIL, asked, history
from tests.window.epochs.test_like_for_like import MONDAY, WEEK_H, noise


def made(seed: int) -> Grid:
    return grid_of(history(seed), MONDAY, UNTIL, Cycle())


def test_costs_that_follow_the_covariates_are_predicted_exactly() -> None:
    of = made(1)
    base = of.ts < CHANGED
    cost = 3.0 + of.covariates @ np.array([-0.4, 0.05, 0.7, -0.6])
    fit = Fit(of, base, math.inf, math.inf)
    assert fit.predicted(fit.baseline(cost), ~base) == pytest.approx(cost[~base], abs=1e-6)


def test_a_repeating_week_is_an_effect_of_the_hour() -> None:
    of = made(1)
    base = of.ts < CHANGED
    cost = np.sin(of.phase * 0.9)
    fit = Fit(of, base, 1e-9, math.inf)
    assert fit.predicted(fit.baseline(cost), ~base) == pytest.approx(cost[~base], abs=1e-4)


@settings(max_examples=examples(20))
@given(st.integers(0, 50), st.floats(-3, 3))
def test_weights_give_actual_minus_predicted_and_no_level(seed: int, level: float) -> None:
    of = made(seed)
    base, after = of.ts < CHANGED, of.ts >= CHANGED
    fit = Fit(of, base, 5.0, 100.0)
    weights = fit.weights(after)
    expected = float((of.cost[after] - fit.predicted(fit.baseline(of.cost), after)).mean())
    assert float(weights @ of.cost) == pytest.approx(expected, abs=1e-9)
    assert float(weights @ (of.cost + level)) == pytest.approx(expected, abs=1e-6)


def test_the_variance_of_a_mean_of_correlated_noise_is_that_of_an_autoregression() -> None:
    means = []
    for seed in range(12):
        of = made(seed)
        cost = noise(np.random.default_rng(seed), len(of), 0.08)
        means.append(noise_of(of, cost, of.ts < CHANGED)[0].long_run_variance)
    assert np.mean(means) == pytest.approx(0.08**2 * 1.6 / 0.4, rel=0.2)


def test_a_history_that_clearly_drifts_is_taken_at_its_own_drift() -> None:
    of = made(3)
    weeks = np.arange(len(of)) / WEEK_H
    still = noise_of(of, of.cost, of.ts < CHANGED)[0]
    drifting = noise_of(of, of.cost + 0.03 * weeks, of.ts < CHANGED)[0]
    assert math.sqrt(drifting.drift_variance) == pytest.approx(0.03, abs=0.01)
    assert drifting.drift_variance > 10 * still.drift_variance


def test_a_longer_window_after_is_more_certain() -> None:
    of = made(2)
    base = of.ts < CHANGED
    noisy, fit = noise_of(of, of.cost, base)
    errors = [
        fit.variance(fit.weights((of.ts >= CHANGED) & (of.ts < CHANGED + days * 24 * HOUR_S)), noisy)
        for days in (2, 4, 7)
    ]
    assert errors == sorted(errors, reverse=True)


def test_the_autocovariance_falls_to_nothing_over_a_block() -> None:
    question = asked(4)
    of = grid_of(question.deployment, MONDAY, UNTIL, Cycle())
    noisy, _ = noise_of(of, of.cost, of.ts < CHANGED)
    assert noisy.autocovariance[0] > noisy.autocovariance[1] > abs(noisy.autocovariance[-1])
