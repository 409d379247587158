"""Hours of a deployment on a regular grid of buckets, with the covariates that explain their cost."""

from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.question import Covariate, Cycle
from pertoken.window.columns import Floats, Ints, Mask
from pertoken.window.epochs.like_for_like import HourlyOutcomes


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """One row per bucket. A bucket that was not measured has 0 in `cost` and `covariates`, and False in `known`."""

    ts: Ints
    phase: Ints
    """Bucket of the week."""
    known: Mask
    cost: Floats
    """Logarithm of device-seconds per token: effects are ratios."""
    covariates: Floats
    """(buckets, columns)."""
    columns: tuple[Covariate, ...]
    """Covariate of each column."""
    cycle: Cycle

    def __len__(self) -> int:
        return len(self.ts)

    def mean(self, mask: Mask) -> Floats:
        """Return the mean of each covariate over some buckets."""
        mean: Floats = self.covariates[mask].mean(axis=0)
        return mean


def grid_of(
    hours: HourlyOutcomes, start: int, end: int, cycle: Cycle, without: frozenset[Covariate] = frozenset()
) -> Grid:
    """Return hours as a grid of the buckets of [start, end); `start` is the start of a bucket.

    The covariates are log load and its square (a token gets cheaper with load, at a decreasing rate), the logarithm of
    the generated share, and the cached share if the engine exposes it.
    """
    ts = start + cycle.bucket_s * np.arange(max(0, -(-(end - start) // cycle.bucket_s)), dtype=np.int64)
    index = (hours.ts - start) // cycle.bucket_s
    inside = (index >= 0) & (index < len(ts))
    index = index[inside]
    known = np.zeros(len(ts), bool)
    known[index] = True
    load = np.log(hours.tokens_per_s)
    load = load - (load.mean() if len(load) else 0.0)
    columns: list[tuple[Covariate, Floats]] = [(Covariate.LOAD, load), (Covariate.LOAD, load**2)]
    columns.append((Covariate.MIX, np.log(hours.generated_share)))
    if hours.cached_share is not None:
        columns.append((Covariate.CACHE, hours.cached_share))
    used = [(name, values) for name, values in columns if name not in without]
    covariates = np.zeros((len(ts), len(used)))
    for column, (_, values) in enumerate(used):
        covariates[index, column] = values[inside] - (values.mean() if len(values) else 0.0)
    cost = np.zeros(len(ts))
    cost[index] = np.log(hours.device_s_per_token[inside])
    return Grid(ts, cycle.phase(ts), known, cost, covariates, tuple(name for name, _ in used), cycle)
