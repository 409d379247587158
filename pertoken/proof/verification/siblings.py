"""Difference-in-differences: what siblings that did not change show of causes that all of them share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.baseline import noise_of
from pertoken.proof.verification.grid import Grid, grid
from pertoken.proof.verification.question import Cycle
from pertoken.proof.verification.windows import Windows
from pertoken.window.columns import Floats, Mask
from pertoken.window.epochs.like_for_like import HourlyOutcomes

MIN_SHARED = 0.8
"""Part of the deployment's hours, before and after the change, in which a sibling must have been measured."""
WEIGHT_BLOCK_DAYS = 1.0
"""Days over which costs are averaged before they are compared: what an hour shares with another one's is noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """Mean cost of siblings over what their own baselines expect."""

    count: int
    weight: float
    """Part of it that the deployment shares, 0 to 1; 1 is the plain difference-in-differences. It is the regression
    slope before the change, so that siblings which share nothing add no noise."""
    excess: Floats
    """By bucket: log cost over expected."""
    known: Mask
    """Buckets in which a sibling was measured."""


NONE = Siblings(0, 0.0, np.zeros(0), np.zeros(0, bool))


def siblings(hours: Sequence[HourlyOutcomes], within: Windows) -> Siblings:
    """Return what the siblings of a deployment show over its windows; `NONE` where none was measured throughout."""
    used = [pair for one in hours if (pair := _excess(one, within)) is not None]
    if not used:
        return NONE
    known = np.array([mask for _, mask in used])
    total = np.array([values for values, _ in used]).sum(axis=0)
    some: Mask = np.logical_or.reduce(known, axis=0)
    excess = np.where(some, total / np.maximum(known.sum(axis=0), 1), 0.0)
    own, own_known = _own_excess(within.of, within.base)
    weight = _shared(own, excess, own_known & some, within.of.cycle)
    return Siblings(len(used), weight, excess, some) if weight > 0 else NONE


def _own_excess(of: Grid, base: Mask) -> tuple[Floats, Mask]:
    _, fit = noise_of(of, of.cost, base, drifts=False)
    excess = np.zeros(len(of))
    excess[base] = of.cost[base] - fit.predicted(fit.baseline(of.cost), base)
    return excess, base


def _excess(hours: HourlyOutcomes, within: Windows) -> tuple[Floats, Mask] | None:
    """Return the cost of one sibling over what its own baseline expects; None where too few hours are measured."""
    end = int(within.of.ts[-1]) + within.of.cycle.bucket_s
    of = grid(hours, within.base_start, end, within.of.cycle)
    before, after = within.base & of.known, within.after & of.known
    if before.sum() < MIN_SHARED * within.base.sum() or after.sum() < MIN_SHARED * within.after.sum():
        return None
    _, fit = noise_of(of, of.cost, before, drifts=False)
    excess = np.zeros(len(of))
    excess[of.known] = of.cost[of.known] - fit.predicted(fit.baseline(of.cost), of.known)
    return excess, of.known


def _shared(own: Floats, others: Floats, both: Mask, cycle: Cycle) -> float:
    """Return the slope of own on others' excess, averaged over blocks, within 0 and 1."""
    length = cycle.buckets_of(WEIGHT_BLOCK_DAYS)
    at = np.flatnonzero(both) // length
    blocks = math.ceil(len(own) / length)
    count = np.bincount(at, minlength=blocks)
    enough = count >= length / 2
    mine, theirs = (np.bincount(at, values[both], blocks)[enough] / count[enough] for values in (own, others))
    square = float(theirs @ theirs)
    return min(1.0, max(0.0, float(mine @ theirs) / square)) if square > 0 else 0.0
