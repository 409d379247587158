"""Hours of a deployment on a regular grid of buckets, with the covariates that explain their cost."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pertoken.proof.verification.question import Covariate, Cycle
from pertoken.window.columns import Floats, Ints, Mask
from pertoken.window.like_for_like import HourlyOutcomes


@dataclass(frozen=True, eq=False)
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
    started_ts: Ints | None = None
    """Start of the process that served each bucket; None where restarts are not recorded."""

    def __len__(self) -> int:
        return len(self.ts)

    def without(self, covariate: Covariate) -> "Grid":
        """Return the grid without the columns of a covariate."""
        kept = [column != covariate for column in self.columns]
        columns = tuple(column for column in self.columns if column != covariate)
        return replace(self, covariates=self.covariates[:, kept], columns=columns)

    @cached_property
    def process(self) -> Ints:
        """Number of the process that served each bucket; all 0 where the time since the start is no covariate."""
        if self.started_ts is None or Covariate.UPTIME not in self.columns:
            return np.zeros(len(self), np.int64)
        return np.unique(self.started_ts, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def design(self) -> Floats:
        """Columns that the cost is fitted by: a level, the covariates, the processes if several, and empty weeks."""
        count = int(self.process.max(initial=0)) + 1
        processes = np.eye(count)[self.process, 1 if count == 1 else 0 :]
        return np.column_stack([np.ones(len(self)), self.covariates, processes, np.zeros(len(self))])

    def mean(self, mask: Mask) -> Floats:
        """Return the mean of each covariate over some buckets."""
        mean: Floats = self.covariates[mask].mean(axis=0)
        return mean


def grid_of(
    hours: HourlyOutcomes, start: int, end: int, cycle: Cycle, without: frozenset[Covariate] = frozenset()
) -> Grid:
    """Return hours as a grid of the buckets of [start, end); `start` is the start of a bucket.

    The covariates are log load and its square (a token gets cheaper with load, at a decreasing rate), the logarithms of
    the generated share and of the tokens per request, and, if the engine exposes them, the cached share and the spread
    of the lengths. Time since the start enters as days and as their logarithm: a cost may creep up, or settle.
    """
    ts = start + cycle.bucket_s * np.arange(max(0, -(-(end - start) // cycle.bucket_s)), dtype=np.int64)
    index = (hours.ts - start) // cycle.bucket_s
    inside = (index >= 0) & (index < len(ts))
    index = index[inside]
    known = np.zeros(len(ts), bool)
    known[index] = True
    load = np.log(hours.tokens_per_s)
    load = load - (load.mean() if len(load) else 0.0)
    columns: list[tuple[Covariate, Floats | None]] = [
        (Covariate.LOAD, load),
        (Covariate.LOAD, load**2),
        (Covariate.MIX, np.log(hours.generated_share)),
        (Covariate.CACHE, hours.cached_share),
        (Covariate.LENGTH, None if hours.tokens_per_request is None else np.log(hours.tokens_per_request)),
        (Covariate.PROMPT_SPREAD, hours.prompt_spread),
        (Covariate.GENERATED_SPREAD, hours.generated_spread),
    ]
    if hours.started_ts is not None:
        days = (hours.ts - hours.started_ts) / cycle.day_s
        columns += [(Covariate.UPTIME, np.log1p(days)), (Covariate.UPTIME, days)]
    used = [(name, values) for name, values in columns if values is not None and name not in without]
    covariates = np.zeros((len(ts), len(used)))
    for column, (_, values) in enumerate(used):
        covariates[index, column] = values[inside] - (values.mean() if len(values) else 0.0)
    cost = np.zeros(len(ts))
    cost[index] = np.log(hours.device_s_per_token[inside])
    started_ts = None
    if hours.started_ts is not None:
        started_ts = np.zeros(len(ts), np.int64)
        started_ts[index] = hours.started_ts[inside]
    return Grid(ts, cycle.phase(ts), known, cost, covariates, tuple(name for name, _ in used), cycle, started_ts)
