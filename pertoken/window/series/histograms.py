"""Bucket counts of epochs, and their quantiles, exact to the bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pertoken.store.query.buckets import SEPARATOR

if TYPE_CHECKING:
    from pertoken.window.columns import Ints

MAX_LOOKED_UP = 1_000_000
"""Largest value of a table by value."""
Counts = Iterable[tuple[int, ...]]
"""(bucket, observations in it), in any order; a bucket may be there several times."""


def counts_of(
    rows: Sequence[Sequence[Any]], metrics: Sequence[str], upper_bounds: Mapping[int, str]
) -> Iterator[tuple[int, str, str, Ints]]:
    """Yield (epoch_id, metric, upper bounds as stored, observations by bucket) of `buckets.histogram_buckets`.

    `upper_bounds` are by the set ids that were passed to it, in that order. Other metrics and sets are left out.
    Raises ImpossibleValues for a value that is no whole number.
    """
    if not rows:
        return
    import numpy as np

    from pertoken.window.columns import whole_numbers

    keys = [whole_numbers(row[1]) for row in rows]
    count = whole_numbers(SEPARATOR.join(row[2] for row in rows))
    owners = np.repeat(np.arange(len(rows)), [len(key) for key in keys])
    key, at = _distinct(np.concatenate(keys))
    table = np.zeros((len(rows), len(key)), np.int64)
    np.add.at(table.reshape(-1), owners * len(key) + at, count)
    rest, metric = np.divmod(key, len(metrics) + 1)
    bucket, of_set = np.divmod(rest, len(upper_bounds) + 1)
    known = (metric < len(metrics)) & (of_set < len(upper_bounds)) & (bucket >= 0)
    bounds_of = list(upper_bounds.values())
    for pair in sorted({*zip(metric[known].tolist(), of_set[known].tolist(), strict=True)}):
        bounds = bounds_of[pair[1]]
        size = bounds.count(SEPARATOR) + (bounds != "") + 1
        columns = np.flatnonzero(known & (metric == pair[0]) & (of_set == pair[1]) & (bucket < size))
        of_pair = np.zeros((len(rows), size), np.int64)
        of_pair[:, bucket[columns]] = table[:, columns]
        for owner in np.flatnonzero(of_pair.any(axis=1)).tolist():
            yield rows[owner][0], metrics[pair[0]], bounds, of_pair[owner]


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values, rising, and the position of each value among them.

    Small values, as all but those of a damaged database are, are looked up: sorting takes seven times as long.
    """
    import numpy as np

    if values.min() < 0 or values.max() > MAX_LOOKED_UP:
        distinct, positions = np.unique(values, return_inverse=True)
        return distinct, positions
    distinct = np.flatnonzero(np.bincount(values))
    position_of = np.zeros(int(distinct[-1]) + 1, np.int64)
    position_of[distinct] = np.arange(len(distinct))
    return distinct, position_of[values]


def histogram(parts: Iterable[tuple[str, Counts]]) -> dict[tuple[float, ...], list[int]]:
    """Return bucket counts by their upper bounds, added up from (upper bounds as stored, counts)."""
    counts_of: dict[tuple[float, ...], list[int]] = {}
    for text, counts in parts:
        bounds = tuple(map(float, filter(None, text.split(","))))
        of = counts_of.setdefault(bounds, [0] * (len(bounds) + 1))
        for bucket, count in counts:
            if 0 <= bucket < len(of):
                of[bucket] += count
    return counts_of


def quantile(histogram: Mapping[tuple[float, ...], Sequence[int]], q: float) -> float | None:
    """Return the q-quantile of observations, as `quantiles` returns several."""
    known = quantiles(histogram, (q,))
    return None if known is None else known[0]


def quantiles(histogram: Mapping[tuple[float, ...], Sequence[int]], shares: Sequence[float]) -> list[float] | None:
    """Return quantiles of observations counted in buckets (one more count than upper bounds; the last is +Inf).

    Several bucket sets (an engine changed its bounds) are merged on the union of their bounds. Linear within the
    bucket; an observation above the last bound is reported as that bound. None if there were no observations.
    """
    at: dict[float, int] = {}
    beyond = 0
    for bounds, counts in histogram.items():
        for bound, count in zip(bounds, counts, strict=False):
            at[bound] = at.get(bound, 0) + count
        beyond += counts[-1]
    total = sum(at.values()) + beyond
    if total == 0:
        return None
    rising = sorted(at)
    return [_quantile(rising, at, q * total) for q in shares]


def _quantile(rising: Sequence[float], at: Mapping[float, int], rank: float) -> float:
    below, lower = 0, 0.0
    for bound in rising:
        if at[bound] and below + at[bound] >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / at[bound]
        below += at[bound]
        lower = bound
    return lower
