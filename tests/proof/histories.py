"""Hours of a deployment before and after a change, made by hand."""

from dataclasses import replace
from typing import Any

import numpy as np

from pertoken.proof.verification.question import Question
from pertoken.window.epochs import hours_in_turn
from pertoken.window.like_for_like import HourlyOutcomes
from tests.window.test_like_for_like import MONDAY, WEEK_H, hours

HOUR_S = 3600
WEEKS = 6
CHANGED = MONDAY + WEEKS * WEEK_H * HOUR_S
UNTIL = CHANGED + WEEK_H * HOUR_S


def history(seed: int, effect: float = 0.0, *, sd: float = 0.05, days: int = 7, load: float = 1.0) -> HourlyOutcomes:
    """Six weeks, and some days with an effect; load alone changes nothing but what load costs."""
    rng = np.random.default_rng(seed)
    before = hours(rng, 0, WEEKS * WEEK_H, sd=sd)
    return restarted(hours_in_turn((before, hours(rng, WEEKS * WEEK_H, days * 24, effect=effect, sd=sd, load=load))))


def restarted(outcomes: HourlyOutcomes, *starts: int) -> HourlyOutcomes:
    """Return the hours of an engine that was started at the change and at other times: every week, unless stated."""
    known = np.array(sorted({*(starts or range(MONDAY, CHANGED, WEEK_H * HOUR_S)), CHANGED}))
    return replace(outcomes, started_ts=known[np.searchsorted(known, outcomes.ts, "right") - 1])


def asked(seed: int, effect: float = 0.0, *, sd: float = 0.05, load: float = 1.0, **other: Any) -> Question:
    return replace(Question(history(seed, effect, sd=sd, load=load), CHANGED, UNTIL), **other)


def scaled(outcomes: HourlyOutcomes, factor: Any) -> HourlyOutcomes:
    """Return the same hours at a multiple of the cost."""
    return replace(outcomes, device_s_per_token=outcomes.device_s_per_token * factor)
