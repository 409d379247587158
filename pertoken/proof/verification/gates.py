"""Tests of a baseline: prediction of a week it was not fitted to, and placebo dates on which nothing changed.

Limits of ASHRAE Guideline 14-2014 for hourly models: CV(RMSE) 30 % and NMBE 10 %, here 5 %.
"""

from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.estimate import Estimator
from pertoken.proof.verification.verdict import proves_change
from pertoken.proof.verification.windows import MIN_AFTER_DAYS, WASHOUT_DAYS
from pertoken.window.columns import Mask

MAX_NMBE = 0.05
MAX_CV_RMSE = 0.30
MIN_DATES = 20
"""Placebo dates without which there is no verdict."""
MAX_FALSE = 0.05
"""Part of the placebo dates that may show a change."""
MIN_PLACEBO_BASELINE_DAYS = 14
"""Days before a placebo date."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Error of a baseline fitted without its last week in predicting that week."""

    nmbe: float
    """Predicted minus actual device-seconds per token over actual ones: normalised mean bias error."""
    cv_rmse: float
    """Root mean square of the hourly differences over the mean."""

    @property
    def passed(self) -> bool:
        """Whether both are within their limits."""
        return abs(self.nmbe) <= MAX_NMBE and self.cv_rmse <= MAX_CV_RMSE


@dataclass(frozen=True, slots=True)
class Placebo:
    """Effects that the same method estimates at dates on which nothing changed."""

    dates: int
    false: int
    """Dates at which it would have proven a saving or a regression."""
    factor: float
    """By which the interval is widened so that at most one date in twenty shows a change; 1 where that holds."""

    @property
    def false_share(self) -> float:
        """Part of the dates with a false verdict."""
        return self.false / self.dates if self.dates else 0.0


def held_out(estimator: Estimator, base: Mask) -> HeldOut | None:
    """Return how the last week of the baseline is predicted from the weeks before; None if it was not measured."""
    week = estimator.of.cycle.buckets
    last = int(np.flatnonzero(base)[-1])
    position = np.arange(len(base))
    fitted, tested = base & (position <= last - week), base & (position > last - week)
    if fitted.sum() < week or tested.sum() < week / 2:
        return None
    expected = estimator.predicted(fitted, tested)
    residuals = estimator.cost[fitted] - estimator.predicted(fitted, fitted)
    # Duan's smearing (1983): the mean of costs is not the exponential of their mean logarithm.
    predicted = np.exp(expected) * np.exp(residuals).mean()
    actual = np.exp(estimator.cost[tested])
    error, mean = predicted - actual, actual.mean()
    return HeldOut(float(error.mean() / mean), float(np.sqrt((error**2).mean()) / mean))


def placebo(estimator: Estimator, base: Mask, after_buckets: int) -> Placebo:
    """Return what the method finds at dates spread over the baseline.

    The window after each is as long as the one after the change, a week at most; two weeks at least come before it.
    """
    cycle = estimator.of.cycle
    washout = cycle.buckets_of(WASHOUT_DAYS)
    length = min(after_buckets, cycle.buckets - washout)
    at = np.flatnonzero(base)
    first = int(at[0]) + cycle.buckets_of(MIN_PLACEBO_BASELINE_DAYS)
    last = int(at[-1]) + 1 - washout - length
    count = max(MIN_DATES + 1, (last - first) // cycle.buckets_of(1) + 1)
    position = np.arange(len(base))
    effects = []
    for date in np.unique(np.linspace(first, last, count).round().astype(int)) if last >= first else ():
        after = base & (position >= date + washout) & (position < date + washout + length)
        if after.sum() >= min(length / 2, cycle.buckets_of(MIN_AFTER_DAYS)):
            effects.append(estimator.effect(base & (position < date), after))
    false = sum(proves_change(effect) for effect in effects)
    if not effects or false <= MAX_FALSE * len(effects):
        return Placebo(len(effects), false, 1.0)
    sizes = np.array([abs(effect.log_ratio) for effect in effects])
    widths = np.array([effect.half_width_90 for effect in effects])
    # Half the saving at most, and excluding 0 at one date in ten at most.
    proving = float(np.quantile(sizes / (2 * widths), 1 - MAX_FALSE, method="higher"))
    excluding = float(np.quantile(sizes / widths, 0.9, method="higher"))
    return Placebo(len(effects), false, max(1.0, proving, excluding))
