"""Difference-in-differences: siblings that did not change show the effect of causes that all deployments share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pertoken.proof.verification.baseline import noise_of
from pertoken.proof.verification.estimate import Effect, Estimator
from pertoken.proof.verification.grid import Grid, grid_of
from pertoken.proof.verification.method import PRESENT, Method
from pertoken.proof.verification.question import Covariate, Cycle
from pertoken.proof.verification.windows import Windows
from pertoken.window.columns import Floats, Mask
from pertoken.window.like_for_like import HourlyOutcomes

MIN_SHARED = 0.8
"""Minimum share of the deployment's hours, before and after the change, in which a sibling was measured."""
WEIGHT_BLOCK_DAYS = 1.0
"""Days over which costs are averaged before they are compared: single hours are mostly noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """Mean cost of siblings over the expectations of their own baselines."""

    count: int
    weight: float
    """Share of the excess that the deployment has in common with the siblings, 0 to 1: the regression slope before the
    change. 1 is the plain difference-in-differences; with 0, unrelated siblings add no noise."""
    excess: Floats
    """Log cost minus expected log cost by bucket."""
    known: Mask
    """Buckets in which a sibling was measured."""
    moved: bool = False
    """Whether their cost changed clearly at the change, for a cause that the deployment may share or not."""
    dropped: int = 0
    """Siblings left out because their costs changed otherwise than those of the others."""


NONE = Siblings(0, 0.0, np.zeros(0), np.zeros(0, bool))


@dataclass(frozen=True, slots=True, eq=False)
class Sibling:
    """Cost of one sibling over the expectation of its own baseline."""

    excess: Floats
    known: Mask
    shift: Effect
    """Its change of cost at the change of the deployment."""

    def agrees(self, other: "Sibling") -> bool:
        """Return whether the 90 % interval of the difference of two shifts holds 0."""
        difference = self.shift.log_ratio - other.shift.log_ratio
        return abs(difference) <= math.hypot(self.shift.half_width_90, other.shift.half_width_90)


def siblings(hours: Sequence[HourlyOutcomes], within: Windows, method: Method = PRESENT) -> Siblings:
    """Return the mean excess of the siblings over the windows of a deployment.

    Siblings are compared with each other: one whose cost changed otherwise than that of most others is left out, and
    of two that differ both.
    """
    measured = [made for sibling in hours if (made := _sibling(sibling, within)) is not None]
    used = [sibling for sibling in measured if not method.compares_siblings or _is_confirmed(sibling, measured)]
    dropped = len(measured) - len(used)
    if not used:
        return replace(NONE, dropped=dropped)
    known = np.array([sibling.known for sibling in used])
    total = np.array([sibling.excess for sibling in used]).sum(axis=0)
    any_known: Mask = np.logical_or.reduce(known, axis=0)
    excess = np.where(any_known, total / np.maximum(known.sum(axis=0), 1), 0.0)
    own, own_known = _own_excess(within.grid.without(Covariate.UPTIME), within.base)
    weight = _shared(own, excess, own_known & any_known, within.grid.cycle)
    if weight == 0:
        return replace(NONE, dropped=dropped)
    shift = np.mean([sibling.shift.log_ratio for sibling in used])
    moved = abs(float(shift)) > np.mean([sibling.shift.half_width_90 for sibling in used])
    return Siblings(len(used), weight, excess, any_known, method.compares_siblings and bool(moved), dropped)


def _is_confirmed(sibling: Sibling, siblings: Sequence[Sibling]) -> bool:
    """Return whether at least half of the other siblings changed alike; one without others is not compared."""
    others = [other for other in siblings if other is not sibling]
    return 2 * sum(map(sibling.agrees, others)) >= len(others)


def _own_excess(grid: Grid, base: Mask) -> tuple[Floats, Mask]:
    _, fit = noise_of(grid, grid.cost, base, drifts=False)
    excess = np.zeros(len(grid))
    excess[base] = grid.cost[base] - fit.predicted(fit.baseline(grid.cost), base)
    return excess, base


def _sibling(hours: HourlyOutcomes, within: Windows) -> Sibling | None:
    """Return one sibling over the windows of the deployment, None if too few hours are measured."""
    end = int(within.grid.ts[-1]) + within.grid.cycle.bucket_s
    grid = grid_of(hours, within.base_start, end, within.grid.cycle, frozenset({Covariate.UPTIME}))
    before, after = within.base & grid.known, within.after & grid.known
    if before.sum() < MIN_SHARED * within.base.sum() or after.sum() < MIN_SHARED * within.after.sum():
        return None
    _, fit = noise_of(grid, grid.cost, before, drifts=False)
    excess = np.zeros(len(grid))
    excess[grid.known] = grid.cost[grid.known] - fit.predicted(fit.baseline(grid.cost), grid.known)
    known_after = after if after.any() else before  # before anything is changed there is no shift
    return Sibling(excess, grid.known, Estimator(grid, grid.cost, before).effect(before, known_after))


def _shared(own: Floats, others: Floats, both: Mask, cycle: Cycle) -> float:
    """Return the regression slope of the own excess on that of the siblings, from 0 to 1, over means of blocks."""
    length = cycle.buckets_of(WEIGHT_BLOCK_DAYS)
    block = np.flatnonzero(both) // length
    blocks = math.ceil(len(own) / length)
    count = np.bincount(block, minlength=blocks)
    enough = count >= length / 2
    own_means, other_means = (
        np.bincount(block, values[both], blocks)[enough] / count[enough] for values in (own, others)
    )
    square = float(other_means @ other_means)
    return min(1.0, max(0.0, float(own_means @ other_means) / square)) if square > 0 else 0.0
