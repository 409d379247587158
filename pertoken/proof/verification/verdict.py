"""Verdict on an effect, by its 90 % interval and the promise.

With s the saving (fraction of the device-seconds per token), (low, high) its 90 % interval and w half its width:

| verdict | when |
|---|---|
| REALIZED | low > 0, w < s / 2, and the promise was kept: the interval reaches its low end |
| PARTIAL | low > 0, w < s / 2, and the whole interval is below the low end of the promise |
| REGRESSED | high < 0 and w < -s / 2 |
| NO_EFFECT | none of these, and the whole interval is within the margin: 5 %, or half of a smaller promise |
| INCONCLUSIVE | none of these, or a gate failed |

A proven saving or loss also exceeds half the width of the 99 % interval: see `Effect.half_width_99`.
"""

from enum import StrEnum

from pertoken.proof.verification.estimate import Effect, Interval, saving
from pertoken.proof.verification.question import Promise

MARGIN = 0.05
"""Saving or loss that does not matter; half the promise if that is smaller. A judgement."""
MAX_RELATIVE_HALF_WIDTH = 0.5
"""Maximum half-width over saving of a proven saving (ASHRAE Guideline 14 asks for this at 68 % confidence)."""


class Verdict(StrEnum):
    """Outcome of a verification."""

    REALIZED = "REALIZED"
    PARTIAL = "PARTIAL"
    NO_EFFECT = "NO_EFFECT"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    OUTPUT_CHANGED = "OUTPUT_CHANGED"
    """Outputs are not what they were, so that no saving counts until their quality is checked: see `guard`."""
    DECAYED = "DECAYED"
    """Result of a re-check: a proven saving that is gone or clearly smaller."""


def judge(effect: Effect, promise: Promise | None) -> Verdict:
    """Return the verdict on an effect whose baseline passed all gates."""
    interval = saving(effect, effect.half_width_90)
    if proves_change(effect):
        if interval.likely < 0:
            return Verdict.REGRESSED
        return Verdict.REALIZED if kept(interval, promise) else Verdict.PARTIAL
    margin = margin_of(promise)
    return Verdict.NO_EFFECT if -margin <= interval.low and interval.high <= margin else Verdict.INCONCLUSIVE


def margin_of(promise: Promise | None) -> float:
    """Return the saving or loss that does not matter."""
    return MARGIN if promise is None else min(MARGIN, max(0.0, promise.likely / 2))


def kept(interval: Interval, promise: Promise | None) -> bool:
    """Return whether the interval of a proven saving reaches the low end of what was promised."""
    return promise is None or interval.high >= promise.low


def proves_change(effect: Effect) -> bool:
    """Return whether the 90 % interval proves a saving or a loss, and the effect exceeds `half_width_99`."""
    return proven(saving(effect, effect.half_width_90)) and abs(effect.log_ratio) > effect.half_width_99


def proven(interval: Interval) -> bool:
    """Return whether a 90 % interval of a saving excludes 0, with a half-width below half of the saving or the loss."""
    excludes_0 = interval.low > 0 or interval.high < 0
    return excludes_0 and interval.half_width < MAX_RELATIVE_HALF_WIDTH * abs(interval.likely)
