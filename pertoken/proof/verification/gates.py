"""Gates of a baseline: prediction of a held-out week, and placebo dates on which nothing changed.

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
"""Minimum number of placebo dates for a verdict."""
MAX_FALSE = 0.05
"""Maximum share of the placebo dates that show a change."""
MIN_PLACEBO_BASELINE_DAYS = 14
"""Minimum days of baseline before a placebo date."""


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
    """Dates with a falsely proven saving or regression."""
    factor: float
    """Factor on the interval so that at most one date in twenty shows a change; 1 if that holds already."""


def held_out(estimator: Estimator, base: Mask) -> HeldOut | None:
    """Return the error in predicting the last week of the baseline, None if too few hours are measured."""
    week = estimator.grid.cycle.buckets
    last = int(np.flatnonzero(base)[-1])
    position = np.arange(len(base))
    fitted, held_out_week = base & (position <= last - week), base & (position > last - week)
    if fitted.sum() < week or held_out_week.sum() < week / 2:
        return None
    expected = estimator.predicted(fitted, held_out_week)
    residuals = estimator.cost[fitted] - estimator.predicted(fitted, fitted)
    # Duan's smearing (1983): the mean of costs is not the exponential of their mean logarithm.
    predicted = np.exp(expected) * np.exp(residuals).mean()
    actual = np.exp(estimator.cost[held_out_week])
    error, mean = predicted - actual, actual.mean()
    return HeldOut(float(error.mean() / mean), float(np.sqrt((error**2).mean()) / mean))


def placebo(estimator: Estimator, base: Mask, after_buckets: int) -> Placebo:
    """Return the effects of the method at dates spread over the baseline, where nothing changed.

    The window after a date is as long as the one after the change, at most a week. At least two weeks precede a date.
    """
    cycle = estimator.grid.cycle
    washout = cycle.buckets_of(WASHOUT_DAYS)
    length = min(after_buckets, cycle.buckets - washout)
    measured = np.flatnonzero(base)
    first = int(measured[0]) + cycle.buckets_of(MIN_PLACEBO_BASELINE_DAYS)
    last = int(measured[-1]) + 1 - washout - length
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
    # At most `MAX_FALSE` of the dates may prove a change, and at most one in ten may exclude 0.
    proving = float(np.quantile(sizes / (2 * widths), 1 - MAX_FALSE, method="higher"))
    excluding = float(np.quantile(sizes / widths, 0.9, method="higher"))
    return Placebo(len(effects), false, max(1.0, proving, excluding))
