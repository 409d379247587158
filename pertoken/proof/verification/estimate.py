"""Effect of a change on log cost against a baseline and siblings, its verdict, and held-out and placebo tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from pertoken.proof.verification.baseline import BucketGrid, Fit, grid_of, noise_of
from pertoken.proof.verification.question import PRESENT, Covariate, Cycle, Method, Promise
from pertoken.proof.verification.windows import MIN_AFTER_DAYS, WASHOUT_DAYS, Windows
from pertoken.window.columns import Floats, Mask
from pertoken.window.like_for_like import Z95, HourlyOutcomes, student_quantile

Z90 = 1.2815515655446004
"""90 % quantile of the normal distribution."""
Z995 = 2.5758293035489004
"""99.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Mean log cost after a change minus the expectation of the baseline: below 0 is cheaper."""

    log_ratio: float
    standard_error: float
    """Without the effect of the restart."""
    degrees: float
    """Degrees of freedom of `standard_error`."""
    restart: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    """Effect of the restart: the probability of each standard deviation."""

    @property
    def half_width_90(self) -> float:
        """Half the width of the 90 % interval of `log_ratio`."""
        return self._half_width(Z95, Z95)

    @property
    def half_width_80(self) -> float:
        """Half the width of the 80 % interval of `log_ratio`."""
        return self._half_width(Z90, Z90)

    @property
    def half_width_99(self) -> float:
        """Half the width of the 99 % interval, widened like the 90 % one; a proven effect exceeds it.

        It matters where a restart rarely adds much: twice the half-width of 90 % leaves out less than 0.1 % of a normal
        distribution, and much more of such a mixture.
        """
        return self._half_width(Z995, Z95)

    @property
    def total_error(self) -> float:
        """Standard error with the effect of the restart."""
        return math.sqrt(self.standard_error**2 + sum(odds * sd**2 for odds, sd in self.restart))

    def _half_width(self, z: float, widened_z: float) -> float:
        """Return the half-width that a mixture of normal distributions exceeds as rarely as one of them exceeds `z`.

        It is widened as Student's t is at the quantile `widened_z`, because the standard error is an estimate.
        """
        spread = [(odds, math.hypot(self.standard_error, sd) * math.sqrt(2)) for odds, sd in self.restart]
        low, high = (z / math.sqrt(2) * pick(error for _, error in spread) for pick in (min, max))
        rare = math.erfc(z / math.sqrt(2))
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            beyond = sum([odds * math.erfc(middle / error) for odds, error in spread])
            low, high = (middle, high) if beyond > rare else (low, middle)
        return high * student_quantile(widened_z, self.degrees) / widened_z

    def widened(self, factor: float) -> Effect:
        """Return the effect with intervals that are wider by a factor."""
        restart = tuple((odds, sd * factor) for odds, sd in self.restart)
        return Effect(self.log_ratio, self.standard_error * factor, self.degrees, restart)

    def spanning(self, effect: Effect) -> Effect:
        """Return an effect with a 90 % interval that spans both."""
        low = min(self.log_ratio - self.half_width_90, effect.log_ratio - effect.half_width_90)
        high = max(self.log_ratio + self.half_width_90, effect.log_ratio + effect.half_width_90)
        return replace(self.widened((high - low) / 2 / self.half_width_90), log_ratio=(low + high) / 2)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with an interval."""

    low: float
    likely: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of high minus low."""
        return (self.high - self.low) / 2


def saving(effect: Effect, half_width: float) -> Interval:
    """Return the saving as a fraction of the device-seconds per token: 0.1 is 10 % less."""
    low, likely, high = (1 - math.exp(effect.log_ratio + value) for value in (half_width, 0.0, -half_width))
    return Interval(low, likely, high)


class Estimator:
    """Estimator of effects at any date of one history, with the noise of its whole baseline."""

    def __init__(self, grid: BucketGrid, cost: Floats, base: Mask, method: Method = PRESENT) -> None:
        self.grid, self.cost, self.method = grid, cost, method
        self.noise, self.fit = noise_of(grid, cost, base, method)

    def effect(self, base: Mask, after: Mask) -> Effect:
        """Return the effect in the buckets `after` against a baseline fitted to `base`."""
        fit = self.fitted(base)
        weights = fit.weights(after)
        return self._effect(fit, weights, float(weights @ self.cost))

    def without_effect(self, base: Mask, after: Mask) -> Effect:
        """Return an effect of 0 over `after` with its uncertainty, which does not depend on the costs there."""
        fit = self.fitted(base)
        return self._effect(fit, fit.weights(after), 0.0)

    def predicted(self, base: Mask, buckets: Mask) -> Floats:
        """Return the log cost that a baseline fitted to `base` expects in `buckets`."""
        fit = self.fitted(base)
        return fit.predicted(fit.baseline(self.cost), buckets)

    def fitted(self, base: Mask) -> Fit:
        """Return the fit to a part of the history."""
        return Fit(self.grid, base, self.noise.theta, self.noise.penalties)

    def _effect(self, fit: Fit, weights: Floats, log_ratio: float) -> Effect:
        within = fit.variance(weights, self.noise) + self.method.level_sd**2
        between = fit.between_processes(weights)
        if self.noise.process_degrees is not None:  # two variances added (Satterthwaite 1946)
            added = between**2 * self.noise.process_variance
            parts = within**2 / self.noise.degrees + added**2 / self.noise.process_degrees
            return Effect(log_ratio, math.sqrt(within + added), (within + added) ** 2 / parts)
        restart = tuple((odds, between * sd) for odds, sd in self.noise.scatter)
        return Effect(log_ratio, math.sqrt(within), self.noise.degrees, restart)


MIN_SHARED = 0.8
"""Minimum share of the deployment's hours, before and after the change, in which a sibling was measured."""
WEIGHT_BLOCK_DAYS = 1.0
"""Days over which costs are averaged before they are compared: single hours are mostly noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """Mean cost of siblings over the expectations of their own baselines."""

    count: int
    weight: float
    """Share of the excess that the deployment has in common with the siblings, 0 to 1: the regression slope before the
    change. 1 is the plain difference-in-differences; with 0, unrelated siblings add no noise."""
    excess: Floats
    """Log cost minus expected log cost by bucket."""
    known: Mask
    """Buckets in which a sibling was measured."""
    moved: bool = False
    """Whether their cost changed clearly at the change, for a cause that the deployment may share or not."""
    dropped: int = 0
    """Siblings left out because their costs changed unlike the others'."""


NONE = Siblings(0, 0.0, np.zeros(0), np.zeros(0, bool))


@dataclass(frozen=True, slots=True, eq=False)
class Sibling:
    """Cost of one sibling over the expectation of its own baseline."""

    excess: Floats
    known: Mask
    shift: Effect
    """Its change of cost at the change of the deployment."""

    def agrees(self, sibling: Sibling) -> bool:
        """Return whether the 90 % interval of the difference of two shifts holds 0."""
        difference = self.shift.log_ratio - sibling.shift.log_ratio
        return abs(difference) <= math.hypot(self.shift.half_width_90, sibling.shift.half_width_90)


def siblings(hours: Sequence[HourlyOutcomes], within: Windows, method: Method = PRESENT) -> Siblings:
    """Return the mean excess of the siblings over the windows of a deployment.

    Siblings are compared with each other: a sibling with a change unlike most others' is left out, and of two that
    differ both.
    """
    measured = [made for sibling in hours if (made := _sibling(sibling, within)) is not None]
    used = [sibling for sibling in measured if not method.compares_siblings or _is_confirmed(sibling, measured)]
    dropped = len(measured) - len(used)
    if not used:
        return replace(NONE, dropped=dropped)
    known_masks = np.array([sibling.known for sibling in used])
    total = np.array([sibling.excess for sibling in used]).sum(axis=0)
    any_known: Mask = np.logical_or.reduce(known_masks, axis=0)
    excess = np.where(any_known, total / np.maximum(known_masks.sum(axis=0), 1), 0.0)
    own_excess = _excess(within.grid.without(Covariate.UPTIME), within.base, within.base)
    weight = _shared(own_excess, excess, within.base & any_known, within.grid.cycle)
    if weight == 0:
        return replace(NONE, dropped=dropped)
    shift = np.mean([sibling.shift.log_ratio for sibling in used])
    moved = abs(float(shift)) > np.mean([sibling.shift.half_width_90 for sibling in used])
    return Siblings(len(used), weight, excess, any_known, method.compares_siblings and bool(moved), dropped)


def _is_confirmed(sibling: Sibling, siblings: Sequence[Sibling]) -> bool:
    """Return whether at least half of the other siblings changed alike; one without others is not compared."""
    peers = [peer for peer in siblings if peer is not sibling]
    return 2 * sum(map(sibling.agrees, peers)) >= len(peers)


def _excess(grid: BucketGrid, base: Mask, buckets: Mask) -> Floats:
    """Return the cost in some buckets over the expectation of a baseline without a drift; 0 in others."""
    _, fit = noise_of(grid, grid.cost, base, drifts=False)
    excess = np.zeros(len(grid))
    excess[buckets] = grid.cost[buckets] - fit.predicted(fit.baseline(grid.cost), buckets)
    return excess


def _sibling(hours: HourlyOutcomes, within: Windows) -> Sibling | None:
    """Return one sibling over the windows of the deployment, None if too few hours are measured."""
    end = int(within.grid.ts[-1]) + within.grid.cycle.bucket_s
    grid = grid_of(hours, within.base_start, end, within.grid.cycle, frozenset({Covariate.UPTIME}))
    base_mask, after_mask = within.base & grid.known, within.after & grid.known
    if base_mask.sum() < MIN_SHARED * within.base.sum() or after_mask.sum() < MIN_SHARED * within.after.sum():
        return None
    excess = _excess(grid, base_mask, grid.known)
    known_after = after_mask if after_mask.any() else base_mask  # before anything is changed there is no shift
    return Sibling(excess, grid.known, Estimator(grid, grid.cost, base_mask).effect(base_mask, known_after))


def _shared(own_excess: Floats, sibling_excess: Floats, both: Mask, cycle: Cycle) -> float:
    """Return the regression slope of the own excess on that of the siblings, from 0 to 1, over means of blocks."""
    length = cycle.buckets_of(WEIGHT_BLOCK_DAYS)
    block = np.flatnonzero(both) // length
    blocks = math.ceil(len(own_excess) / length)
    count = np.bincount(block, minlength=blocks)
    enough = count >= length / 2
    own_means, other_means = (
        np.bincount(block, values[both], blocks)[enough] / count[enough] for values in (own_excess, sibling_excess)
    )
    square = float(other_means @ other_means)
    return min(1.0, max(0.0, float(own_means @ other_means) / square)) if square > 0 else 0.0


MARGIN = 0.05
"""Saving or loss that does not matter; half the promise if that is smaller. A judgement."""
MAX_RELATIVE_HALF_WIDTH = 0.5
"""Maximum half-width over saving of a proven saving (ASHRAE Guideline 14 asks for this at 68 % confidence)."""


class EffectVerdict(StrEnum):
    """Outcome of a verification."""

    REALIZED = "REALIZED"
    PARTIAL = "PARTIAL"
    NO_EFFECT = "NO_EFFECT"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    OUTPUT_CHANGED = "OUTPUT_CHANGED"
    """Outputs changed, so that no saving counts until their quality is checked: see `guard`."""
    DECAYED = "DECAYED"
    """Result of a re-check: a proven saving that is gone or clearly smaller."""


def judge(effect: Effect, promise: Promise | None) -> EffectVerdict:
    """Return the verdict on an effect, after its baseline passed all gates."""
    interval = saving(effect, effect.half_width_90)
    if proves_change(effect):
        if interval.likely < 0:
            return EffectVerdict.REGRESSED
        return EffectVerdict.REALIZED if kept(interval, promise) else EffectVerdict.PARTIAL
    margin = margin_of(promise)
    return (
        EffectVerdict.NO_EFFECT if -margin <= interval.low and interval.high <= margin else EffectVerdict.INCONCLUSIVE
    )


def margin_of(promise: Promise | None) -> float:
    """Return the saving or loss that does not matter."""
    return MARGIN if promise is None else min(MARGIN, max(0.0, promise.likely / 2))


def kept(interval: Interval, promise: Promise | None) -> bool:
    """Return whether the interval of a proven saving reaches the low end of the promise."""
    return promise is None or interval.high >= promise.low


def proves_change(effect: Effect) -> bool:
    """Return whether the 90 % interval proves a saving or a loss, and the effect exceeds `half_width_99`."""
    return proven(saving(effect, effect.half_width_90)) and abs(effect.log_ratio) > effect.half_width_99


def proven(interval: Interval) -> bool:
    """Return whether a 90 % interval of a saving excludes 0, with a half-width below half of the saving or the loss."""
    excludes_0 = interval.low > 0 or interval.high < 0
    return excludes_0 and interval.half_width < MAX_RELATIVE_HALF_WIDTH * abs(interval.likely)


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
