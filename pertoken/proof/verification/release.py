"""Verdict on released devices. Their dollars are exact, so the test is whether the service continues as before."""

import math
from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.estimate import Estimator, Interval
from pertoken.proof.verification.gates import MIN_PLACEBO_BASELINE_DAYS
from pertoken.proof.verification.grid import Grid
from pertoken.proof.verification.method import PRESENT, Method
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle
from pertoken.proof.verification.verdict import Verdict
from pertoken.proof.verification.windows import MIN_AFTER_DAYS, MIN_MEASURED
from pertoken.window.columns import Floats, Ints

MAX_LOST_DEMAND = 0.10
"""Maximum share of tokens missing against the same hours of earlier weeks. A judgement: demand fluctuates."""


@dataclass(frozen=True, slots=True, eq=False)
class Served:
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
    served: Served | None
    """Tokens of the weeks before and the time after; None if the devices served no requests."""
    changed_at: int
    until: int
    nano_usd_per_hour: int | None
    """Price of the released devices; None if one of them has no price."""
    cycle: Cycle = WEEK_OF_HOURS


@dataclass(frozen=True, slots=True)
class ReleaseFinding:
    """Verdict on a release."""

    verdict: Verdict
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
        return ReleaseFinding(Verdict.NO_EFFECT, reason="no device was released")
    ratio = None if question.served is None else _served(question.served, question, method)
    if release.objectives_kept is False:
        return ReleaseFinding(Verdict.REGRESSED, "objective-missed", "an objective is missed since", ratio)
    if ratio is None and question.served is not None:
        text = "too few hours before or after the release are measured to compare the tokens served"
        return ReleaseFinding(Verdict.INCONCLUSIVE, "few-hours", text)
    if ratio is not None and ratio.high < 1 - MAX_LOST_DEMAND:
        text = f"{1 - ratio.likely:.0%} fewer tokens are served than expected: demand fell, or was turned away"
        return ReleaseFinding(Verdict.INCONCLUSIVE, "demand-fell", text, ratio)
    if release.released_devices < release.promised_devices:
        text = f"{release.released_devices} of {release.promised_devices} devices are released"
        return ReleaseFinding(Verdict.PARTIAL, reason=text, served=ratio)
    return ReleaseFinding(Verdict.REALIZED, served=ratio)


def _served(served: Served, question: ReleaseQuestion, method: Method) -> Interval | None:
    changed_at, until, cycle = question.changed_at, question.until, question.cycle
    if not len(served.ts):
        return None
    start = int(served.ts[0])
    ts = np.arange(start, until, cycle.bucket_s, dtype=np.int64)
    index = (served.ts - start) // cycle.bucket_s
    inside = (index < len(ts)) & (served.tokens_per_s > 0)
    known = np.zeros(len(ts), bool)
    known[index[inside]] = True
    tokens = np.zeros(len(ts))
    tokens[index[inside]] = np.log(served.tokens_per_s[inside])
    grid = Grid(ts, cycle.phase(ts), known, tokens, np.zeros((len(ts), 0)), (), cycle)
    base = known & (ts + cycle.bucket_s <= changed_at)
    after = known & (ts >= changed_at)
    if base.sum() < MIN_MEASURED * cycle.buckets_of(MIN_PLACEBO_BASELINE_DAYS):
        return None
    if after.sum() < cycle.buckets_of(MIN_AFTER_DAYS):
        return None
    effect = Estimator(grid, tokens, base, method).effect(base, after)
    half = effect.half_width_90
    return Interval(*(math.exp(effect.log_ratio + value) for value in (-half, 0.0, half)))
