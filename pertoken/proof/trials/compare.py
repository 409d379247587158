"""The difference between both arms of a trial: minutes in, an effect with its uncertainty out.

Minutes of two replicas are paired; what load, mix and cached share still differ by is taken out by a regression. The
standard error is that of a jackknife over blocks of minutes (Künsch, Ann. Stat. 17, 1989), or over the blocks of a
switchback: minutes that follow each other are no independent measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.estimate import Effect
from pertoken.proof.verification.question import Covariate
from pertoken.proof.verification.windows import Refused
from pertoken.window.columns import Floats, Ints
from pertoken.window.like_for_like import MAX_CACHED_DIFFERENCE, MAX_LOAD_RATIO, MAX_MIX_RATIO, HourlyOutcomes

BLOCK_MINUTES = 10
"""Minutes of a block of the jackknife. A judgement: batches and caches remember some minutes."""
MIN_BLOCKS = 6
"""Blocks, of either kind, from which an interval is computed."""
MIN_BASELINE_MINUTES = BLOCK_MINUTES * MIN_BLOCKS
"""Minutes before a trial from which replicas are made alike by them."""
_LIMITS = {
    Covariate.LOAD: (math.log(MAX_LOAD_RATIO), "load"),
    Covariate.MIX: (math.log(MAX_MIX_RATIO), "share of generated tokens"),
    Covariate.CACHE: (MAX_CACHED_DIFFERENCE, "share of cached prompt tokens"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Minutes of one block of a switchback."""

    changed: bool
    """Whether the change was on."""
    minutes: HourlyOutcomes


def paired(
    canary: HourlyOutcomes, control: HourlyOutcomes, without: frozenset[Covariate] = frozenset()
) -> Effect | Refused:
    """Return the log cost per token of one replica over another's in the same minutes, at equal load and mix.

    `without`: what the change is meant to alter, which is not made equal.
    """
    _, of_canary, of_control = np.intersect1d(canary.ts, control.ts, return_indices=True)
    if len(of_canary) < MIN_BASELINE_MINUTES:
        return Refused("few-minutes", f"{len(of_canary)} minutes of both replicas, {MIN_BASELINE_MINUTES} are needed")
    one, other = _covariates(canary, without), _covariates(control, without)
    used = [name for name in one if name in other]
    differences = {name: one[name][of_canary] - other[name][of_control] for name in used}
    for name, values in differences.items():
        limit, label = _LIMITS[name]
        if abs(float(values.mean())) > limit:
            return Refused(f"{name}-differs", f"the {label} of both replicas differs too much to compare them")
    cost = np.log(canary.device_s_per_token[of_canary]) - np.log(control.device_s_per_token[of_control])
    columns = [np.ones(len(cost)), *(values for values in differences.values() if values.std() > 0)]
    blocks = canary.ts[of_canary] // (60 * BLOCK_MINUTES)
    return _jackknife(cost, np.stack(columns, axis=1), 0, blocks, lost=len(columns))


def less(after: Effect, before: Effect) -> Effect:
    """Return a difference without the one that was there before (difference-in-differences)."""
    variances = after.standard_error**2, before.standard_error**2
    parts = variances[0] ** 2 / after.degrees + variances[1] ** 2 / before.degrees
    degrees = sum(variances) ** 2 / parts if parts > 0 else after.degrees  # Satterthwaite, Biometrics 2, 1946
    return Effect(after.log_ratio - before.log_ratio, math.sqrt(sum(variances)), degrees)


def switched(blocks: Sequence[Block], without: frozenset[Covariate] = frozenset()) -> Effect | Refused:
    """Return the log cost per token with a change over that without, from blocks that follow each other.

    A drift over time and what load, mix and cached share differ by are taken out.
    """
    if len(blocks) < MIN_BLOCKS:
        return Refused("few-blocks", f"{len(blocks)} blocks, {MIN_BLOCKS} are needed")
    made = [_covariates(block.minutes, without) for block in blocks]
    used = [name for name in made[0] if all(name in columns for columns in made)]
    number = np.concatenate([np.full(len(block.minutes), n) for n, block in enumerate(blocks)])
    changed = np.concatenate([np.full(len(block.minutes), float(block.changed)) for block in blocks])
    values = {name: np.concatenate([columns[name] for columns in made]) for name in used}
    for name, column in values.items():
        limit, label = _LIMITS[name]
        if abs(float(column[changed == 1].mean() - column[changed == 0].mean())) > limit:
            return Refused(f"{name}-differs", f"the {label} with and without the change differs too much")
    ts = np.concatenate([block.minutes.ts for block in blocks]).astype(np.float64)
    drift = (ts - ts.mean()) / max(1.0, float(np.ptp(ts)))
    covariates = [column - column.mean() for column in values.values() if column.std() > 0]
    columns = np.stack([changed, np.ones(len(ts)), drift, *covariates], axis=1)
    cost = np.log(np.concatenate([block.minutes.device_s_per_token for block in blocks]))
    return _jackknife(cost, columns, 0, number, lost=3)


def _covariates(minutes: HourlyOutcomes, without: frozenset[Covariate]) -> dict[Covariate, Floats]:
    made = {Covariate.LOAD: np.log(minutes.tokens_per_s), Covariate.MIX: np.log(minutes.generated_share)}
    if minutes.cached_share is not None:
        made[Covariate.CACHE] = minutes.cached_share
    return {name: values for name, values in made.items() if name not in without}


def _jackknife(cost: Floats, columns: Floats, at: int, block: Ints, lost: int) -> Effect | Refused:
    """Return one coefficient of a regression, with the error that leaving out each block shows."""
    names = np.unique(block)
    degrees = len(names) - lost
    if len(names) < MIN_BLOCKS or degrees < 1:
        return Refused("few-minutes", f"the minutes are of {len(names)} blocks, {MIN_BLOCKS} are needed")
    left_out = np.array([_coefficient(cost[block != name], columns[block != name], at) for name in names])
    variance = (len(names) - 1) / len(names) * float(((left_out - left_out.mean()) ** 2).sum())
    return Effect(_coefficient(cost, columns, at), math.sqrt(variance), degrees)


def _coefficient(cost: Floats, columns: Floats, at: int) -> float:
    fitted, *_ = np.linalg.lstsq(columns, cost, rcond=None)
    return float(fitted[at])
