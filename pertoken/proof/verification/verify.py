"""Verification of a question or a release, its re-check, and the smallest saving that a history can prove.

Its steps: match hours, subtract siblings, estimate the effect, test the gates, judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pertoken.proof.verification.baseline import BucketGrid
from pertoken.proof.verification.estimate import (
    MAX_CV_RMSE,
    MAX_NMBE,
    MIN_DATES,
    MIN_PLACEBO_BASELINE_DAYS,
    Effect,
    EffectVerdict,
    Estimator,
    HeldOut,
    Interval,
    Placebo,
    Siblings,
    held_out,
    judge,
    placebo,
    saving,
    siblings,
)
from pertoken.proof.verification.guard import Guard
from pertoken.proof.verification.question import (
    PRESENT,
    WEEK_OF_HOURS,
    Covariate,
    Cycle,
    EventKind,
    Method,
    OtherChange,
    Question,
)
from pertoken.proof.verification.windows import (
    MIN_AFTER_DAYS,
    MIN_MEASURED,
    WASHOUT_DAYS,
    NotEstimable,
    Windows,
    baseline_buckets,
    restart_refusal,
    single_restart,
    windows,
)
from pertoken.window.columns import Floats, Ints, Mask

MIN_SHIFT = 0.05
"""Change of mean load or mix from which it is listed as an event."""


@dataclass(frozen=True, slots=True)
class UsedWindow:
    """A window as used."""

    start: int
    end: int
    hours: int
    """Hours used."""
    expected: int
    """Hours in the window, measured or not."""


@dataclass(frozen=True, slots=True)
class VerifiedEffect:
    """Answer to a question. Values that could not be computed are None."""

    verdict: EffectVerdict
    code: str | None = None
    """Reason of INCONCLUSIVE, for programs."""
    reason: str | None = None
    """The same for people."""
    saving_90: Interval | None = None
    """Fraction of the device-seconds per token saved, 90 % interval, widened by `placebo.factor`; below 0 is a loss."""
    saving_80: Interval | None = None
    earlier_s_per_mtok: float | None = None
    """Device-seconds per 10^6 tokens in the window before, as measured."""
    expected_s_per_mtok: float | None = None
    """The same expected in the window after without the change, at its load, mix and cache level."""
    later_s_per_mtok: float | None = None
    """The same measured in the matched hours after."""
    matched_mtok: float | None = None
    """Tokens of the matched hours after, in 10^6."""
    before: UsedWindow | None = None
    after: UsedWindow | None = None
    held_out: HeldOut | None = None
    placebo: Placebo | None = None
    siblings: int = 0
    """Number of siblings used."""
    sibling_weight: float = 0.0
    siblings_moved: bool = False
    """Whether the siblings changed too: the interval then spans the effect with and without them."""
    siblings_dropped: int = 0
    """Siblings left out because they changed otherwise than the others."""
    explained: tuple[tuple[Covariate, float], ...] = ()
    """Change of the cost of a token that load, mix and cache level caused, as fractions: never part of the saving."""
    events: tuple[OtherChange, ...] = ()
    """Other changes in order of time: the events of the question, and shifts of load and mix."""
    not_matched: tuple[Covariate, ...] = ()
    """Covariates that were not measured, or that the change is meant to alter."""
    guard: Guard | None = None
    """Comparison of the outputs; None where none were counted."""


def verify(question: Question, method: Method = PRESENT) -> VerifiedEffect:
    """Return the finding on a change from the hours of its deployment and of its siblings."""
    used = windows(question)
    empty = VerifiedEffect(
        EffectVerdict.INCONCLUSIVE, events=tuple(sorted(question.events, key=lambda event: event.ts))
    )
    if isinstance(used, NotEstimable):
        return replace(empty, code=used.code, reason=used.reason)
    others = siblings(question.siblings, used, method)
    base, after = used.base, used.after
    cost = used.grid.cost
    if others.count:
        base, after = base & others.known, after & others.known
        cost = cost - others.weight * others.excess
    estimator = Estimator(used.grid, cost, base, method)
    effect = estimator.effect(base, after)
    held_out_week = held_out(estimator, base)
    placebos = placebo(estimator, base, int(used.expected_after))
    effect = effect.widened(placebos.factor)
    if others.moved:  # the deployment may share the cause or not: the verdict must hold with the siblings and without
        alone = Estimator(used.grid, used.grid.cost, base, method).effect(base, after)
        effect = effect.spanning(alone.widened(placebos.factor))
    finding = _described(question, used, others, estimator, effect)
    finding = replace(finding, held_out=held_out_week, placebo=placebos)
    refused = (used.not_separable if method.separates_restarts else None) or refusal(held_out_week, placebos)
    if refused is not None:
        return replace(finding, code=refused.code, reason=refused.reason)
    verdict = judge(effect, question.promise)
    if verdict is EffectVerdict.INCONCLUSIVE:
        reason = "; ".join(filter(None, (_too_wide(effect), single_restart(used.grid, base, after))))
        return replace(finding, code="wide-interval", reason=reason)
    return replace(finding, verdict=verdict)


def refusal(held_out_week: HeldOut | None, placebos: Placebo) -> NotEstimable | None:
    """Return the gate that a baseline fails as a refusal, None if it passes both."""
    if held_out_week is None:
        return NotEstimable(
            "short-history", "too few hours of the last week before the change are measured to test it on"
        )
    if not held_out_week.passed:
        text = (
            f"predicted the last week before the change with a bias of {held_out_week.nmbe:+.1%} (limit {MAX_NMBE:.0%})"
        )
        text += f" and an hourly error of {held_out_week.cv_rmse:.0%} (limit {MAX_CV_RMSE:.0%})"
        return NotEstimable("baseline-fails", f"the baseline {text}")
    if placebos.dates < MIN_DATES:
        return NotEstimable(
            "few-placebos", f"{placebos.dates} placebo dates fit into the history, {MIN_DATES} are needed"
        )
    return None


def _too_wide(effect: Effect) -> str:
    interval = saving(effect, effect.half_width_90)
    return (
        f"the 90 % interval of the saving is {interval.low:+.1%} to {interval.high:+.1%}: "
        "too wide to prove a saving, or that there is none"
    )


def _described(
    question: Question, used: Windows, others: Siblings, estimator: Estimator, effect: Effect
) -> VerifiedEffect:
    grid, base, after = used.grid, used.base, used.after
    fitted = estimator.fit.baseline(estimator.cost)
    shift = (grid.mean(after) - grid.mean(base)) * fitted.covariates
    explained = {
        covariate: math.expm1(float(shift[[column == covariate for column in grid.columns]].sum()))
        for covariate in dict.fromkeys(grid.columns)
    }
    (earlier, _), (later, mtok) = (_s_per_mtok(question, used, mask) for mask in (base, after))
    return VerifiedEffect(
        EffectVerdict.INCONCLUSIVE,
        saving_90=saving(effect, effect.half_width_90),
        saving_80=saving(effect, effect.half_width_80),
        earlier_s_per_mtok=earlier,
        expected_s_per_mtok=later / math.exp(effect.log_ratio),
        later_s_per_mtok=later,
        matched_mtok=mtok,
        before=UsedWindow(used.base_start, question.changed_at, int(base.sum()), used.expected_base),
        after=UsedWindow(used.after_start, used.after_end, int(after.sum()), used.expected_after),
        siblings=others.count,
        sibling_weight=others.weight,
        siblings_moved=others.moved,
        siblings_dropped=others.dropped,
        explained=tuple(explained.items()),
        events=tuple(sorted([*question.events, *_shifts(question, used)], key=lambda event: event.ts)),
        not_matched=tuple(covariate for covariate in estimator.method.covariates if covariate not in grid.columns),
    )


def _s_per_mtok(question: Question, used: Windows, mask: Mask) -> tuple[float, float]:
    """Return the device-seconds per 10^6 tokens of some buckets, and their 10^6 tokens."""
    hours = question.deployment
    index = (hours.ts - used.grid.ts[0]) // used.grid.cycle.bucket_s
    inside = (index >= 0) & (index < len(mask))
    chosen = np.flatnonzero(inside)[mask[index[inside]]]
    tokens = hours.tokens_per_s[chosen] * question.cycle.bucket_s
    seconds = hours.device_s_per_token[chosen] * tokens
    return float(seconds.sum() / tokens.sum()) * 1e6, float(tokens.sum()) / 1e6


def _shifts(question: Question, used: Windows) -> list[OtherChange]:
    """Return the shifts of load and mix from before to after, as events at the time of the change."""
    grid = used.grid
    shifts = []
    for covariate, kind, label in (
        (Covariate.LOAD, EventKind.LOAD, "load"),
        (Covariate.MIX, EventKind.MIX, "share of generated tokens"),
    ):
        if covariate in grid.columns:
            values = grid.covariates[:, grid.columns.index(covariate)]
            ratio = math.exp(float(_weekly(values, grid.phase, used.after, used.base)))
            if abs(ratio - 1) >= MIN_SHIFT:
                text = f"{label} {ratio - 1:+.0%} in the same hours of the week"
                shifts.append(OtherChange(question.changed_at, kind, text))
    return shifts


def _weekly(values: np.ndarray, phase: np.ndarray, after: Mask, base: Mask) -> float:
    """Return the mean over `after` of a value minus its mean in the same bucket of the week over `base`."""
    count = np.bincount(phase[base], minlength=int(phase.max()) + 1)
    mean = np.bincount(phase[base], values[base], len(count)) / np.maximum(count, 1)
    return float((values[after] - mean[phase[after]]).mean())


MAX_LOST_DEMAND = 0.10
"""Maximum share of tokens missing against the same hours of earlier weeks. A judgement: demand fluctuates."""


@dataclass(frozen=True, slots=True, eq=False)
class ServiceTokens:
    """Tokens served by a service per hour, over all of its deployments."""

    ts: Ints
    tokens_per_s: Floats


@dataclass(frozen=True, slots=True)
class Release:
    """Promised and realised numbers of released devices."""

    promised_devices: int
    released_devices: int
    objectives_kept: bool | None
    """Whether latencies after the release met the objectives; None if unknown or without objectives."""


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseQuestion:
    """Did the service continue after devices were released?"""

    release: Release
    served: ServiceTokens | None
    """Tokens of the weeks before and the time after; None if the devices served no requests."""
    changed_at: int
    until: int
    nano_usd_per_hour: int | None
    """Price of the released devices; None if one of them has no price."""
    cycle: Cycle = WEEK_OF_HOURS


@dataclass(frozen=True, slots=True)
class ReleaseFinding:
    """EffectVerdict on a release."""

    verdict: EffectVerdict
    code: str | None = None
    reason: str | None = None
    served: Interval | None = None
    """Served over expected tokens after the release, 90 % interval; expected from the same hours of earlier weeks."""


def verify_release(question: ReleaseQuestion, method: Method = PRESENT) -> ReleaseFinding:
    """Return whether devices were released while the service continued: the first verdict that applies.

    | verdict | when |
    |---|---|
    | NO_EFFECT | no device was released |
    | REGRESSED | an objective is missed |
    | INCONCLUSIVE | too few hours, or clearly fewer tokens served: a bill that falls with demand is no saving |
    | PARTIAL | fewer devices than promised |
    | REALIZED | otherwise; also if no requests were served before, because there is nothing to test |
    """
    release = question.release
    if release.released_devices <= 0:
        return ReleaseFinding(EffectVerdict.NO_EFFECT, reason="no device was released")
    ratio = None if question.served is None else _served(question.served, question, method)
    if release.objectives_kept is False:
        return ReleaseFinding(EffectVerdict.REGRESSED, "objective-missed", "an objective is missed since", ratio)
    if ratio is None and question.served is not None:
        text = "too few hours before or after the release are measured to compare the tokens served"
        return ReleaseFinding(EffectVerdict.INCONCLUSIVE, "few-hours", text)
    if ratio is not None and ratio.high < 1 - MAX_LOST_DEMAND:
        text = f"{1 - ratio.likely:.0%} fewer tokens are served than expected: demand fell, or was turned away"
        return ReleaseFinding(EffectVerdict.INCONCLUSIVE, "demand-fell", text, ratio)
    if release.released_devices < release.promised_devices:
        text = f"{release.released_devices} of {release.promised_devices} devices are released"
        return ReleaseFinding(EffectVerdict.PARTIAL, reason=text, served=ratio)
    return ReleaseFinding(EffectVerdict.REALIZED, served=ratio)


def _served(served: ServiceTokens, question: ReleaseQuestion, method: Method) -> Interval | None:
    changed_at, until, cycle = question.changed_at, question.until, question.cycle
    if not len(served.ts):
        return None
    start = int(served.ts[0])
    ts = np.arange(start, until, cycle.bucket_s, dtype=np.int64)
    index = (served.ts - start) // cycle.bucket_s
    inside = (index < len(ts)) & (served.tokens_per_s > 0)
    measured = np.zeros(len(ts), bool)
    measured[index[inside]] = True
    tokens = np.zeros(len(ts))
    tokens[index[inside]] = np.log(served.tokens_per_s[inside])
    grid = BucketGrid(ts, cycle.phase(ts), measured, tokens, np.zeros((len(ts), 0)), (), cycle)
    base = measured & (ts + cycle.bucket_s <= changed_at)
    after = measured & (ts >= changed_at)
    if base.sum() < MIN_MEASURED * cycle.buckets_of(MIN_PLACEBO_BASELINE_DAYS):
        return None
    if after.sum() < cycle.buckets_of(MIN_AFTER_DAYS):
        return None
    effect = Estimator(grid, tokens, base, method).effect(base, after)
    half = effect.half_width_90
    return Interval(*(math.exp(effect.log_ratio + value) for value in (-half, 0.0, half)))


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
    """Why a value is unknown. Where the promise takes more than `MAX_DAYS`: a way to shorten that."""

    def after(self, days: int) -> float | None:
        """Return the smallest saving that this number of days proves."""
        return self.smallest[days - 1] if 1 <= days <= len(self.smallest) else None


def detectable(question: Question) -> Detectable:
    """Return the savings that a change at `question.changed_at` could prove, from the hours before it.

    Load, mix and cache level after the change are assumed to equal their means in the same hours of the week.
    """
    cycle = question.cycle
    days = max(1, cycle.buckets // 7)
    prior = baseline_buckets(question, question.changed_at + MAX_DAYS * days * cycle.bucket_s)
    if isinstance(prior, NotEstimable):
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


def _continued(grid: BucketGrid, base: Mask) -> BucketGrid:
    """Return the grid with every bucket after the baseline set to the mean of its bucket of the week."""
    count = np.bincount(grid.phase[base], minlength=grid.cycle.buckets)
    future = np.arange(len(grid)) > int(np.flatnonzero(base)[-1])
    covariates = grid.covariates.copy()
    for column in range(covariates.shape[1]):
        mean = np.bincount(grid.phase[base], grid.covariates[base, column], grid.cycle.buckets) / np.maximum(count, 1)
        covariates[future, column] = mean[grid.phase[future]]
    measured = np.where(future, count[grid.phase] > 0, base)
    return replace(grid, known=measured, covariates=covariates, cost=np.where(future, 0.0, grid.cost))


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


RECHECK_DAYS = (7, 30)
"""Days after the verdict at which the last weeks are verified again, against the same baseline."""
PROVEN = (EffectVerdict.REALIZED, EffectVerdict.PARTIAL)


def recheck(proven: VerifiedEffect, later: VerifiedEffect) -> EffectVerdict:
    """Return DECAYED if a proven saving is gone or clearly smaller, otherwise its first verdict.

    It is gone if the later verdict is NO_EFFECT, REGRESSED or OUTPUT_CHANGED, and clearly smaller if the later 90 %
    interval is below the first one. A later INCONCLUSIVE alone disproves nothing.
    """
    if proven.verdict not in PROVEN or proven.saving_90 is None:
        return proven.verdict
    if later.verdict in (EffectVerdict.NO_EFFECT, EffectVerdict.REGRESSED, EffectVerdict.OUTPUT_CHANGED):
        return EffectVerdict.DECAYED
    judged = later.verdict in PROVEN or later.code == "wide-interval"
    smaller = later.saving_90 is not None and later.saving_90.high < proven.saving_90.low
    return EffectVerdict.DECAYED if judged and smaller else proven.verdict
