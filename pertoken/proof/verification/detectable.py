"""Smallest saving that the history before a change could prove, and the number of days until it is proven."""

import math
from dataclasses import dataclass, replace

import numpy as np

from pertoken.proof.verification.estimate import Effect, Estimator
from pertoken.proof.verification.gates import held_out, placebo
from pertoken.proof.verification.grid import Grid
from pertoken.proof.verification.question import Question
from pertoken.proof.verification.siblings import siblings
from pertoken.proof.verification.verify import refusal
from pertoken.proof.verification.windows import (
    MIN_AFTER_DAYS,
    WASHOUT_DAYS,
    Refused,
    Windows,
    before,
    restart_refusal,
    single_restart,
)
from pertoken.window.columns import Mask

MAX_DAYS = 28
"""Maximum days after a change for a proof."""
POWER_Z = 0.8416212335729143
"""80 % quantile of the normal distribution: four of five savings of the reported size are proven."""

UNKNOWN_DAYS = 1.05
"""Factor on the standard error, because load and mix of the days after may differ from those before. A judgement: in
histories of `benchmarks.proof` intervals were 2 % wider, in one of ten 5 %."""


@dataclass(frozen=True, slots=True)
class Detectable:
    """Savings that could be proven of a change made now. Unknown values are None, with the reason."""

    smallest: tuple[float, ...] = ()
    """Smallest saving (fraction of the device-seconds per token) proven with a power of 80 % after 1, 2, … days; 1.0
    where no saving could be proven."""
    days_to_proof: int | None = None
    """Days until the promised saving is proven; None also if `MAX_DAYS` are too few."""
    code: str | None = None
    reason: str | None = None
    """Why a value is unknown. Where the promise takes more than `MAX_DAYS`, what could shorten that."""

    def after(self, days: int) -> float | None:
        """Return the smallest saving that this number of days proves."""
        return self.smallest[days - 1] if 1 <= days <= len(self.smallest) else None


def detectable(question: Question) -> Detectable:
    """Return the savings that a change at `question.changed_at` could prove, from the hours before it.

    Load, mix and cache level after the change are assumed to equal their means in the same hours of the week.
    """
    cycle = question.cycle
    days = max(1, cycle.buckets // 7)
    prior = before(question, question.changed_at + MAX_DAYS * days * cycle.bucket_s)
    if isinstance(prior, Refused):
        return Detectable(code=prior.code, reason=prior.reason)
    grid = _continued(prior.grid, prior.base)
    future = grid.known & ~prior.base & (grid.ts >= question.changed_at)
    if (not_separable := restart_refusal(prior.grid, prior.base, future)) is not None:
        return Detectable(code=not_separable.code, reason=not_separable.reason)
    used = Windows(grid, prior.base, np.zeros(len(grid), bool), prior.start, question.changed_at, 0, prior.expected, 0)
    others = siblings(question.siblings, used)
    base, cost = prior.base, grid.cost
    if others.count:
        base, cost = base & others.known, cost - others.weight * others.excess
    estimator = Estimator(grid, cost, base)
    placebos = placebo(estimator, base, cycle.buckets)
    if (refused := refusal(held_out(estimator, base), placebos)) is not None:
        return Detectable(code=refused.code, reason=refused.reason)
    position = np.arange(len(grid)) - int(np.flatnonzero(prior.base)[-1])
    washout = cycle.buckets_of(WASHOUT_DAYS)
    smallest = []
    for day in range(1, MAX_DAYS + 1):
        after = future & (position > washout) & (position <= day * days)
        enough = after.sum() >= cycle.buckets_of(MIN_AFTER_DAYS)
        none = estimator.without_effect(base, after).widened(placebos.factor * UNKNOWN_DAYS) if enough else None
        smallest.append(1.0 if none is None else _smallest(none))
    promised = question.promise.likely if question.promise is not None else None
    proven_day = next((day for day, saving in enumerate(smallest, 1) if promised and saving <= promised), None)
    shorter = single_restart(grid, base, future) if promised and proven_day is None else None
    return Detectable(tuple(smallest), proven_day, reason=shorter)


def _continued(grid: Grid, base: Mask) -> Grid:
    """Return the grid with every bucket after the baseline set to the mean of its bucket of the week."""
    count = np.bincount(grid.phase[base], minlength=grid.cycle.buckets)
    future = np.arange(len(grid)) > int(np.flatnonzero(base)[-1])
    covariates = grid.covariates.copy()
    for column in range(covariates.shape[1]):
        mean = np.bincount(grid.phase[base], grid.covariates[base, column], grid.cycle.buckets) / np.maximum(count, 1)
        covariates[future, column] = mean[grid.phase[future]]
    known = np.where(future, count[grid.phase] > 0, base)
    return replace(grid, known=known, covariates=covariates, cost=np.where(future, 0.0, grid.cost))


def _smallest(none: Effect) -> float:
    """Return the smallest saving that is proven with a power of 80 % at the uncertainty of an effect of 0.

    With h the half-width of the log effect, a saving s has the half-width (1 - s) sinh h, which must be below s / 2.
    The estimate is `POWER_Z` standard errors below the true saving in one of five runs.
    """
    if none.half_width_90 > 1:
        return 1.0
    twice = 2 * math.sinh(none.half_width_90)
    needed = min(math.log1p(-twice / (1 + twice)), -none.half_width_99)
    return 1 - math.exp(needed - POWER_Z * none.total_error)
