"""The baseline: exact without noise, linear in the costs, and honest about correlated noise."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.proof.verification.baseline import BucketGrid, Fit, Penalties, grid_of, noise_of
from pertoken.proof.verification.question import METHODS, PRESENT, Covariate, Cycle
from pertoken.window.columns import Floats
from tests.examples import examples
from tests.proof.histories import CHANGED, HOUR_S, UNTIL, asked, history
from tests.window.test_like_for_like import MONDAY, WEEK_H, noise


def made(seed: int) -> BucketGrid:
    """Hours without restarts."""
    return grid_of(history(seed), MONDAY, UNTIL, Cycle(), frozenset({Covariate.UPTIME}))


def test_costs_that_follow_the_covariates_are_predicted_exactly() -> None:
    of = made(1)
    base = of.ts < CHANGED
    cost = 3.0 + of.covariates @ np.array([-0.4, 0.05, 0.7, -0.6])
    fit = Fit(of, base, math.inf)
    assert fit.predicted(fit.baseline(cost), ~base) == pytest.approx(cost[~base], abs=1e-6)


def test_a_repeating_week_is_an_effect_of_the_hour() -> None:
    of = made(1)
    base = of.ts < CHANGED
    cost = np.sin(of.phase * 0.9)
    fit = Fit(of, base, 1e-9)
    assert fit.predicted(fit.baseline(cost), ~base) == pytest.approx(cost[~base], abs=1e-4)


@settings(max_examples=examples(20))
@given(st.integers(0, 50), st.floats(-3, 3))
def test_weights_give_actual_minus_predicted_and_no_level(seed: int, level: float) -> None:
    of = made(seed)
    base, after = of.ts < CHANGED, of.ts >= CHANGED
    fit = Fit(of, base, 5.0, Penalties(100.0))
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


def restarted_grid(seed: int, log_cost: Callable[[BucketGrid], Floats]) -> BucketGrid:
    """Return hours of an engine that is started every week, and so at the change, with another cost since a start."""
    of = grid_of(history(seed), MONDAY, UNTIL, Cycle())
    return replace(of, cost=of.cost + log_cost(of))


def days(of: BucketGrid) -> Floats:
    return of.covariates[:, of.columns.index(Covariate.UPTIME) + 1]


def test_a_cost_that_creeps_up_since_the_start_is_known_at_any_age() -> None:
    of = restarted_grid(1, lambda of: 0.004 * days(of))
    base = of.ts < CHANGED
    _, fit = noise_of(of, of.cost, base)
    plain = grid_of(history(1), MONDAY, UNTIL, Cycle())
    expected = fit.predicted(fit.baseline(of.cost), ~base) - 0.004 * days(of)[~base]
    assert expected.mean() == pytest.approx(plain.cost[~base].mean(), abs=0.02)


def test_the_scatter_between_starts_is_measured_where_there_are_several() -> None:
    levels = 0.08 * np.random.default_rng(4).standard_normal(7)
    same = noise_of(of := restarted_grid(2, lambda of: np.zeros(len(of))), of.cost, of.ts < CHANGED)[0]
    drawn = noise_of(of := restarted_grid(2, lambda of: levels[of.process]), of.cost, of.ts < CHANGED)[0]
    assert math.sqrt(drawn.process_variance) == pytest.approx(levels[:6].std(ddof=1), rel=0.4)
    assert math.sqrt(same.process_variance) < 0.01
    assert same.scatter[0][0] > PRESENT.scatter[0][0] > drawn.scatter[0][0]


def test_a_few_processes_that_are_alike_do_not_show_that_starts_do_not_matter() -> None:
    of = grid_of(history(1), MONDAY, UNTIL, Cycle())
    of = replace(of, started_ts=np.where(of.ts < CHANGED - 7 * 24 * HOUR_S, MONDAY, CHANGED - 7 * 24 * HOUR_S))
    measured = noise_of(of, of.cost, of.ts < CHANGED)[0]
    assert measured.scatter[0] == (0.0, 0.0)
    assert math.sqrt(measured.process_variance) > 0.01


def test_without_restarts_the_scatter_between_starts_is_the_prior() -> None:
    of = made(1)
    for method in METHODS.values():
        assert noise_of(of, of.cost, of.ts < CHANGED, method)[0].scatter == method.scatter
        assert sum(odds for odds, _ in method.scatter) == pytest.approx(1)
