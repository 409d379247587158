"""Verification of one question: match hours, subtract siblings, estimate the effect, test the gates, judge."""

import math
from dataclasses import dataclass, replace

import numpy as np

from pertoken.proof.verification.estimate import Effect, Estimator, Interval, saving
from pertoken.proof.verification.gates import MAX_CV_RMSE, MAX_NMBE, MIN_DATES, HeldOut, Placebo, held_out, placebo
from pertoken.proof.verification.guard import Guard
from pertoken.proof.verification.method import PRESENT, Method
from pertoken.proof.verification.question import Covariate, Event, EventKind, Question
from pertoken.proof.verification.siblings import Siblings, siblings
from pertoken.proof.verification.verdict import Verdict, judge
from pertoken.proof.verification.windows import Refused, Windows, single_restart, windows
from pertoken.window.columns import Mask

MIN_SHIFT = 0.05
"""Change of mean load or mix from which it is listed as an event."""


@dataclass(frozen=True, slots=True)
class Span:
    """A window as used."""

    start: int
    end: int
    hours: int
    """Hours used."""
    expected: int
    """Hours in the window, measured or not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Answer to a question. Values that could not be computed are None."""

    verdict: Verdict
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
    before: Span | None = None
    after: Span | None = None
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
    events: tuple[Event, ...] = ()
    """Other changes in order of time: the events of the question, and shifts of load and mix."""
    not_matched: tuple[Covariate, ...] = ()
    """Covariates that were not measured, or that the change is meant to alter."""
    guard: Guard | None = None
    """What became of the outputs; None where none were counted."""


def verify(question: Question, method: Method = PRESENT) -> Finding:
    """Return the finding on a change from the hours of its deployment and of its siblings."""
    used = windows(question)
    empty = Finding(Verdict.INCONCLUSIVE, events=tuple(sorted(question.events, key=lambda event: event.ts)))
    if isinstance(used, Refused):
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
    if verdict is Verdict.INCONCLUSIVE:
        reason = "; ".join(filter(None, (_too_wide(effect), single_restart(used.grid, base, after))))
        return replace(finding, code="wide-interval", reason=reason)
    return replace(finding, verdict=verdict)


def refusal(held_out_week: HeldOut | None, placebos: Placebo) -> Refused | None:
    """Return the gate that a baseline fails as a refusal, None if it passes both."""
    if held_out_week is None:
        return Refused("short-history", "too few hours of the last week before the change are measured to test it on")
    if not held_out_week.passed:
        text = (
            f"predicted the last week before the change with a bias of {held_out_week.nmbe:+.1%} (limit {MAX_NMBE:.0%})"
        )
        text += f" and an hourly error of {held_out_week.cv_rmse:.0%} (limit {MAX_CV_RMSE:.0%})"
        return Refused("baseline-fails", f"the baseline {text}")
    if placebos.dates < MIN_DATES:
        return Refused("few-placebos", f"{placebos.dates} placebo dates fit into the history, {MIN_DATES} are needed")
    return None


def _too_wide(effect: Effect) -> str:
    interval = saving(effect, effect.half_width_90)
    return (
        f"the 90 % interval of the saving is {interval.low:+.1%} to {interval.high:+.1%}: "
        "too wide to prove a saving, or that there is none"
    )


def _described(question: Question, used: Windows, others: Siblings, estimator: Estimator, effect: Effect) -> Finding:
    grid, base, after = used.grid, used.base, used.after
    fitted = estimator.fit.baseline(estimator.cost)
    shift = (grid.mean(after) - grid.mean(base)) * fitted.covariates
    explained = {
        covariate: math.expm1(float(shift[[column == covariate for column in grid.columns]].sum()))
        for covariate in dict.fromkeys(grid.columns)
    }
    (earlier, _), (later, mtok) = (_s_per_mtok(question, used, mask) for mask in (base, after))
    return Finding(
        Verdict.INCONCLUSIVE,
        saving_90=saving(effect, effect.half_width_90),
        saving_80=saving(effect, effect.half_width_80),
        earlier_s_per_mtok=earlier,
        expected_s_per_mtok=later / math.exp(effect.log_ratio),
        later_s_per_mtok=later,
        matched_mtok=mtok,
        before=Span(used.base_start, question.changed_at, int(base.sum()), used.expected_base),
        after=Span(used.after_start, used.after_end, int(after.sum()), used.expected_after),
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


def _shifts(question: Question, used: Windows) -> list[Event]:
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
                shifts.append(Event(question.changed_at, kind, text))
    return shifts


def _weekly(values: np.ndarray, phase: np.ndarray, after: Mask, base: Mask) -> float:
    """Return the mean over `after` of a value minus its mean in the same bucket of the week over `base`."""
    count = np.bincount(phase[base], minlength=int(phase.max()) + 1)
    mean = np.bincount(phase[base], values[base], len(count)) / np.maximum(count, 1)
    return float((values[after] - mean[phase[after]]).mean())
