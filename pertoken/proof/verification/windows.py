"""Windows before and after a change. They leave out cold caches, other changes and hours that cannot be compared."""

import math
from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.baseline import MIN_PROCESS_DAYS, BucketGrid, grid_of
from pertoken.proof.verification.question import Covariate, Cycle, Question
from pertoken.window.columns import Ints, Mask
from pertoken.window.like_for_like import MAX_CACHED_DIFFERENCE, MAX_LOAD_RATIO, MAX_MIX_RATIO

MAX_BASELINE_DAYS = 56
"""Maximum days before the change: older ones differ by drift."""
MIN_BASELINE_DAYS = 21
"""Minimum days before the change: two weeks to fit a baseline, and a held-out week to test it."""
MIN_MEASURED = 0.9
"""Minimum share of these days that is measured: a few hours are always missing."""
MIN_AFTER_DAYS = 2
"""Minimum matched days after the change."""
WASHOUT_DAYS = 0.25
"""Days after a restart that are left out because caches are cold. These constants are judgements."""
NOT_SEPARABLE = "not-separable"
_BY_TRIAL = "try the change by `pertoken trial`, which restarts a control"
WAY_OUT = {
    1: f"{_BY_TRIAL}, or restart the engine twice as it is, two weeks and one week before the change",
    2: f"{_BY_TRIAL}, or restart the engine once more as it is, a week before the change",
}
"""Way to a verdict, by the number of processes before a change: three show how starts scatter."""
MAX_LENGTH_RATIO = 1.25
"""Maximum ratio of the tokens per request of similar hours."""
MAX_SPREAD_DIFFERENCE = 0.25
"""Maximum difference of the standard deviations of the logarithm of a length."""
MAX_UPTIME_RATIO = 1.5
"""Maximum ratio of the times since the start of similar hours, each plus a day."""
MIN_ALIKE = 5
"""Minimum number of similar hours before the change for an hour after it to count."""
MIN_MATCHED = 0.5
"""Minimum share of the hours after the change that have similar hours before it."""


def washout_s(cycle: Cycle) -> int:
    """Return the seconds after a restart that are left out."""
    return cycle.buckets_of(WASHOUT_DAYS) * cycle.bucket_s


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Buckets before and after a change."""

    grid: BucketGrid
    base: Mask
    after: Mask
    """Matched buckets after the change and its washout."""
    base_start: int
    after_start: int
    after_end: int
    expected_base: int
    """Buckets of the window before the change, measured or not."""
    expected_after: int
    not_separable: "NotEstimable | None" = None
    """Why the effect of the change cannot be separated from its restart."""


@dataclass(frozen=True, slots=True)
class NotEstimable:
    """Reason why no effect can be estimated."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class BaselineBuckets:
    """Buckets before a change, on a grid that continues after it."""

    grid: BucketGrid
    base: Mask
    start: int
    expected: int


def baseline_buckets(question: Question, end: int) -> BaselineBuckets | NotEstimable:
    """Return the buckets before the change on a grid up to `end`, or the reason why there are too few.

    They begin after the last other change, so that its effect is not attributed to this change.
    """
    cycle, changed = question.cycle, question.changed_at
    earlier = [event for event in question.events if event.kind.splits and event.ts <= changed]
    start = max(
        changed - cycle.bucket_s * cycle.buckets_of(MAX_BASELINE_DAYS),
        int(question.deployment.ts[0]) if len(question.deployment) else changed,
        *(event.ts + washout_s(cycle) for event in earlier),
    )
    start = -(-start // cycle.bucket_s) * cycle.bucket_s
    grid = grid_of(question.deployment, start, max(end, start), cycle, question.acts_through)
    past = grid.ts + cycle.bucket_s <= changed
    base = grid.known & past & _is_warm(grid)
    needed = cycle.buckets_of(MIN_BASELINE_DAYS)
    if base.sum() < MIN_MEASURED * needed:
        text = f"{base.sum()} measured hours before the change, {needed} are needed"
        if earlier:
            last = max(earlier, key=lambda event: event.ts)
            return NotEstimable("other-change", f"{text}, since another change came before it: {last.text}")
        return NotEstimable("short-history", text)
    return BaselineBuckets(grid, base, start, int(past.sum()))


def windows(question: Question) -> Windows | NotEstimable:
    """Return the comparable buckets before and after the change, or the reason why there are too few."""
    later = [event for event in question.events if event.kind.splits and event.ts > question.changed_at]
    end = min([question.until, *(event.ts for event in later)])
    prior = baseline_buckets(question, end)
    if isinstance(prior, NotEstimable):
        return prior
    grid, cycle = prior.grid, question.cycle
    after_start = max(question.changed_at + washout_s(cycle), question.after_from or 0)
    expected = (grid.ts >= after_start) & (grid.ts + cycle.bucket_s <= end)
    candidates = grid.known & expected & _is_warm(grid)
    needed = cycle.buckets_of(MIN_AFTER_DAYS)
    if candidates.sum() < needed:
        text = f"{candidates.sum()} measured hours after the change and its washout, {needed} are needed"
        if later:
            first = min(later, key=lambda event: event.ts)
            return NotEstimable("other-change", f"{text}, since another change came soon after it: {first.text}")
        return NotEstimable("few-hours", text)
    not_separable = restart_refusal(grid, prior.base, candidates)
    if not_separable is not None or len(processes(grid, prior.base)) < 2:
        grid = grid.without(Covariate.UPTIME)
    # A re-check is of an older process than any before, so that its age is extrapolated.
    alike = grid if question.after_from is None else grid.without(Covariate.UPTIME)
    matched = _matched(alike, prior.base, candidates)
    if isinstance(matched, NotEstimable):
        return matched
    return Windows(
        grid,
        prior.base,
        matched,
        prior.start,
        after_start,
        max(end, after_start),
        prior.expected,
        int(expected.sum()),
        not_separable,
    )


def _is_warm(grid: BucketGrid) -> Mask:
    """Return whether the caches of each bucket are warm: false within the washout after a recorded start."""
    if grid.started_ts is None:
        return np.ones(len(grid), bool)
    warm: Mask = grid.ts - grid.started_ts >= washout_s(grid.cycle)
    return warm


def processes(grid: BucketGrid, base: Mask) -> Ints:
    """Return the starts of the processes that served at least `MIN_PROCESS_DAYS` of a baseline."""
    if grid.started_ts is None:
        return np.zeros(0, np.int64)
    starts, hours = np.unique(grid.started_ts[base], return_counts=True)
    return starts[hours >= grid.cycle.buckets_of(MIN_PROCESS_DAYS)]


def restart_refusal(grid: BucketGrid, base: Mask, after: Mask) -> NotEstimable | None:
    """Return why a change cannot be separated from its restart, None if it can or if nothing was restarted.

    A process may be faster or slower than the next one of the same engine, and a cost may creep up from its start on.
    Two processes before the change show both.
    """
    if grid.started_ts is None:
        return _inseparable("starts of its engine are not recorded")
    starts = processes(grid, base)
    if len(starts) > 1 or np.unique(grid.started_ts[base | after]).size == 1:
        return None
    return _inseparable("its engine was not restarted between earlier changes and this one")


def _inseparable(why: str) -> NotEstimable:
    return NotEstimable(NOT_SEPARABLE, f"not separable from the restart: {why}; {WAY_OUT[1]}")


def single_restart(grid: BucketGrid, base: Mask, after: Mask) -> str | None:
    """Return the way to a narrower interval where a change restarted an engine that restarted once before it."""
    starts = processes(grid, base)
    if grid.started_ts is None or len(starts) != 2 or np.isin(starts, grid.started_ts[after]).any():
        return None
    return f"its engine was restarted only once between earlier changes and this one; {WAY_OUT[2]}"


CALIPERS = {
    Covariate.LOAD: (math.log(MAX_LOAD_RATIO), "load-differs", "load"),
    Covariate.MIX: (math.log(MAX_MIX_RATIO), "mix-differs", "share of generated tokens"),
    Covariate.CACHE: (MAX_CACHED_DIFFERENCE, "cache-differs", "share of cached prompt tokens"),
    Covariate.LENGTH: (math.log(MAX_LENGTH_RATIO), "length-differs", "number of tokens per request"),
    Covariate.PROMPT_SPREAD: (MAX_SPREAD_DIFFERENCE, "length-differs", "spread of the prompt length"),
    Covariate.GENERATED_SPREAD: (MAX_SPREAD_DIFFERENCE, "length-differs", "spread of the output length"),
    Covariate.UPTIME: (math.log(MAX_UPTIME_RATIO), "uptime-differs", "time since the engine started"),
}
"""Largest difference of like hours in each covariate, with the code and the name of a larger one."""


def _matched(grid: BucketGrid, base: Mask, candidates: Mask) -> Mask | NotEstimable:
    """Return the buckets after the change that are similar to enough buckets before it.

    Similar buckets may be of another hour of the week, because its effect is fitted. But the own hour of the week must
    have been measured before the change.
    """
    similar = np.ones((int(candidates.sum()), int(base.sum())), bool)
    needed = max(math.ceil(MIN_MATCHED * len(similar)), grid.cycle.buckets_of(MIN_AFTER_DAYS))
    for covariate in dict.fromkeys(grid.columns):
        values = grid.covariates[:, grid.columns.index(covariate)]
        limit, code, label = CALIPERS[covariate]
        similar &= np.abs(values[candidates][:, None] - values[base]) <= limit
        count = int((similar.sum(axis=1) >= MIN_ALIKE).sum())
        if count < needed:
            text = f"the {label} differed: {count} of {len(similar)} hours after the change have like hours before it"
            return NotEstimable(code, text)
    measured = np.bincount(grid.phase[base], minlength=grid.cycle.buckets) > 0
    matched = candidates.copy()
    matched[candidates] = (similar.sum(axis=1) >= MIN_ALIKE) & measured[grid.phase[candidates]]
    if matched.sum() < needed:
        text = f"{matched.sum()} of {len(similar)} hours after the change are of an hour of the week measured before it"
        return NotEstimable("few-hours", text)
    return matched
