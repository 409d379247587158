"""Smallest saving that a history could prove before anything is changed, and the days that takes."""

import math
from dataclasses import dataclass, replace

import numpy as np

from pertoken.proof.verification.estimate import Effect, Estimator
from pertoken.proof.verification.gates import held_out, placebo
from pertoken.proof.verification.grid import Grid
from pertoken.proof.verification.question import Question
from pertoken.proof.verification.siblings import siblings
from pertoken.proof.verification.verify import refusal
from pertoken.proof.verification.windows import MIN_AFTER_DAYS, WASHOUT_DAYS, Refused, Windows, before
from pertoken.window.columns import Mask

MAX_DAYS = 28
"""Days after a change up to which a proof is looked for."""
POWER_Z = 0.8416212335729143
"""80 % quantile of the normal distribution: four in five savings of the size that is named are proven."""

UNKNOWN_DAYS = 1.05
"""By which the standard error is larger than it looks: load and mix of the days after may differ from those before. A
judgement; in `benchmarks.proof` histories intervals were 2 % wider, in one of ten 5 %."""


@dataclass(frozen=True, slots=True)
class Detectable:
    """Savings that could be proven of a change made now. Unknown values are None, with the reason."""

    smallest: tuple[float, ...] = ()
    """Smallest saving (fraction of the device-seconds per token) that is proven with a power of 80 %, by the number of
    days after the change; infinite, as 1.0, where no saving could be."""
    days_to_proof: int | None = None
    """Days after which the promised saving would be proven; None also where `MAX_DAYS` do not suffice."""
    code: str | None = None
    reason: str | None = None

    def after(self, days: int) -> float | None:
        """Return the smallest saving that this number of days proves."""
        return self.smallest[days - 1] if 1 <= days <= len(self.smallest) else None


def detectable(question: Question) -> Detectable:
    """Return what a change at `question.changed_at` could prove, from the hours before it alone.

    Load, mix and cache level of the days after are taken as they were in the same hours of the week.
    """
    cycle = question.cycle
    days = max(1, cycle.buckets // 7)
    prior = before(question, question.changed_at + MAX_DAYS * days * cycle.bucket_s)
    if isinstance(prior, Refused):
        return Detectable(code=prior.code, reason=prior.reason)
    of = _continued(prior.of, prior.base)
    future = of.known & ~prior.base & (of.ts >= question.changed_at)
    used = Windows(of, prior.base, np.zeros(len(of), bool), prior.start, question.changed_at, 0, prior.expected, 0)
    others = siblings(question.siblings, used)
    base, cost = prior.base, of.cost
    if others.count:
        base, cost = base & others.known, cost - others.weight * others.excess
    estimator = Estimator(of, cost, base)
    tried = placebo(estimator, base, cycle.buckets)
    if (refused := refusal(held_out(estimator, base), tried)) is not None:
        return Detectable(code=refused.code, reason=refused.reason)
    position = np.arange(len(of)) - int(np.flatnonzero(prior.base)[-1])
    washout = cycle.buckets_of(WASHOUT_DAYS)
    smallest = []
    for day in range(1, MAX_DAYS + 1):
        after = future & (position > washout) & (position <= day * days)
        enough = after.sum() >= cycle.buckets_of(MIN_AFTER_DAYS)
        error = estimator.standard_error(base, after) * tried.factor * UNKNOWN_DAYS if enough else math.inf
        smallest.append(_smallest(Effect(0.0, error, estimator.noise.degrees)))
    promised = question.promise.likely if question.promise is not None else None
    proving = (day for day, saving in enumerate(smallest, 1) if promised is not None and saving <= promised)
    return Detectable(tuple(smallest), next(proving, None))


def _continued(of: Grid, base: Mask) -> Grid:
    """Return the grid with each bucket after the baseline as the mean of its bucket of the week in it."""
    count = np.bincount(of.phase[base], minlength=of.cycle.buckets)
    future = np.arange(len(of)) > int(np.flatnonzero(base)[-1])
    covariates = of.covariates.copy()
    for column in range(covariates.shape[1]):
        mean = np.bincount(of.phase[base], of.covariates[base, column], of.cycle.buckets) / np.maximum(count, 1)
        covariates[future, column] = mean[of.phase[future]]
    known = np.where(future, count[of.phase] > 0, base)
    return replace(of, known=known, covariates=covariates, cost=np.where(future, 0.0, of.cost))


def _smallest(none: Effect) -> float:
    """Return the saving that is proven with a power of 80 %, by the uncertainty of an effect.

    With h the half-width of the logarithm, that of the saving s is (1 - s) sinh h, which must be below s / 2; the
    estimate falls short of the true saving in one of five runs by `POWER_Z` standard errors.
    """
    if math.isinf(none.standard_error) or none.half_width_90 > 1:
        return 1.0
    twice = 2 * math.sinh(none.half_width_90)
    needed = math.log1p(-twice / (1 + twice))
    return 1 - math.exp(needed - POWER_Z * none.standard_error)
