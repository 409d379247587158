"""Windows before and after a change, without cold caches, other changes and unlike hours."""

import math
from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.grid import Grid, grid
from pertoken.proof.verification.question import Covariate, Question
from pertoken.window.columns import Mask
from pertoken.window.epochs.like_for_like import MAX_CACHED_DIFFERENCE, MAX_LOAD_RATIO, MAX_MIX_RATIO

MAX_BASELINE_DAYS = 56
"""Days before the change that are looked at: drift makes older ones useless."""
MIN_BASELINE_DAYS = 21
"""Two weeks to fit a baseline, and one held out to test it."""
MIN_MEASURED = 0.9
"""Part of those days that must be measured: a few hours are always missing."""
MIN_AFTER_DAYS = 2
"""Matched days after the change."""
WASHOUT_DAYS = 0.25
"""Days after a restart that are left out while caches are cold. Judgements, all of them."""
MIN_ALIKE = 5
"""Hours before the change that an hour after it must be alike to."""
MIN_MATCHED = 0.5
"""Part of the hours after the change that must be alike to hours before it."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Buckets before and after a change."""

    of: Grid
    base: Mask
    after: Mask
    """Matched buckets after the change and its washout."""
    base_start: int
    after_start: int
    after_end: int
    expected_base: int
    """Buckets between start and end of the window before the change, observed or not."""
    expected_after: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Reason why no effect can be estimated."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """Buckets before a change, on a grid that goes on after it."""

    of: Grid
    base: Mask
    start: int
    expected: int


def before(question: Question, end: int) -> Before | Refused:
    """Return the buckets before the change on a grid up to `end`, or why there are too few.

    They begin after the last other change: what it did is no part of the effect.
    """
    cycle, changed = question.cycle, question.changed_at
    earlier = [event for event in question.events if event.kind.splits and event.ts <= changed]
    start = max(
        changed - cycle.bucket_s * cycle.buckets_of(MAX_BASELINE_DAYS),
        int(question.deployment.ts[0]) if len(question.deployment) else changed,
        *(event.ts + _washout_s(question) for event in earlier),
    )
    start = -(-start // cycle.bucket_s) * cycle.bucket_s
    of = grid(question.deployment, start, max(end, start), cycle, question.acts_through)
    past = of.ts + cycle.bucket_s <= changed
    base = of.known & past
    needed = cycle.buckets_of(MIN_BASELINE_DAYS)
    if base.sum() < MIN_MEASURED * needed:
        text = f"{base.sum()} measured hours before the change, {needed} are needed"
        if earlier:
            last = max(earlier, key=lambda event: event.ts)
            return Refused("other-change", f"{text}, since another change came before it: {last.text}")
        return Refused("short-history", text)
    return Before(of, base, start, int(past.sum()))


def windows(question: Question) -> Windows | Refused:
    """Return the buckets before and after the change that can be compared, or why there are too few."""
    later = [event for event in question.events if event.kind.splits and event.ts > question.changed_at]
    end = min([question.until, *(event.ts for event in later)])
    prior = before(question, end)
    if isinstance(prior, Refused):
        return prior
    of, cycle = prior.of, question.cycle
    after_start = max(question.changed_at + _washout_s(question), question.after_from or 0)
    expected = (of.ts >= after_start) & (of.ts + cycle.bucket_s <= end)
    candidates = of.known & expected
    needed = cycle.buckets_of(MIN_AFTER_DAYS)
    if candidates.sum() < needed:
        text = f"{candidates.sum()} measured hours after the change and its washout, {needed} are needed"
        if later:
            first = min(later, key=lambda event: event.ts)
            return Refused("other-change", f"{text}, since another change came soon after it: {first.text}")
        return Refused("few-hours", text)
    matched = _matched(of, prior.base, candidates)
    if isinstance(matched, Refused):
        return matched
    return Windows(
        of, prior.base, matched, prior.start, after_start, max(end, after_start), prior.expected, int(expected.sum())
    )


def _washout_s(question: Question) -> int:
    return question.cycle.buckets_of(WASHOUT_DAYS) * question.cycle.bucket_s


_CALIPERS = {
    Covariate.LOAD: (math.log(MAX_LOAD_RATIO), "load-differs", "load"),
    Covariate.MIX: (math.log(MAX_MIX_RATIO), "mix-differs", "share of generated tokens"),
    Covariate.CACHE: (MAX_CACHED_DIFFERENCE, "cache-differs", "share of cached prompt tokens"),
}


def _matched(of: Grid, base: Mask, candidates: Mask) -> Mask | Refused:
    """Return the buckets after the change that are alike to enough buckets before it.

    Those need not be of the same hour of the week, whose effect is fitted; but it must have been measured.
    """
    alike = np.ones((int(candidates.sum()), int(base.sum())), bool)
    needed = max(math.ceil(MIN_MATCHED * len(alike)), of.cycle.buckets_of(MIN_AFTER_DAYS))
    for covariate in dict.fromkeys(of.columns):
        values = of.covariates[:, of.columns.index(covariate)]
        limit, code, label = _CALIPERS[covariate]
        alike &= np.abs(values[candidates][:, None] - values[base][None, :]) <= limit
        count = int((alike.sum(axis=1) >= MIN_ALIKE).sum())
        if count < needed:
            text = f"the {label} differed: {count} of {len(alike)} hours after the change have like hours before it"
            return Refused(code, text)
    measured = np.bincount(of.phase[base], minlength=of.cycle.buckets) > 0
    matched = candidates.copy()
    matched[candidates] = (alike.sum(axis=1) >= MIN_ALIKE) & measured[of.phase[candidates]]
    if matched.sum() < needed:
        text = f"{matched.sum()} of {len(alike)} hours after the change are of an hour of the week measured before it"
        return Refused("few-hours", text)
    return matched
