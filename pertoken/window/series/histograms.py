"""Bucket counts of epochs, and their quantiles, exact to the bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pertoken.store.query.buckets import NULL, SEPARATOR

if TYPE_CHECKING:
    from pertoken.window.columns import Ints

Counts = Iterable[tuple[int, ...]]
"""(bucket, observations in it), in any order; a bucket may be there several times."""


def counts_of(
    rows: Sequence[Sequence[Any]], metrics: Sequence[str], upper_bounds: Mapping[int, str]
) -> Iterator[tuple[int, str, str, Ints]]:
    """Yield (epoch_id, metric, upper bounds as stored, observations by bucket) of `buckets.histogram_buckets`.

    Metrics that are not in `metrics`, and sets that are not in `upper_bounds`, are left out. Raises CorruptStore for a
    value that is no whole number.
    """
    if not rows:
        return
    import numpy as np

    from pertoken.window.columns import whole_numbers

    lengths = [row[1].count(SEPARATOR) + 1 for row in rows]
    owners = np.repeat(np.arange(len(rows)), lengths)
    metric, set_id, bucket, count = (whole_numbers(SEPARATOR.join(row[n] for row in rows)) for n in range(1, 5))
    sets = np.array(sorted(upper_bounds), np.int64)
    at = np.searchsorted(sets, set_id)
    known = (metric < len(metrics)) & (np.append(sets, NULL)[at] == set_id) & (bucket >= 0)
    owners, metric, at, bucket, count = (column[known] for column in (owners, metric, at, bucket, count))
    # A fleet has few of all pairs of a metric and a set, and an epoch fewer.
    pairs = metric * len(sets) + at
    pair = np.flatnonzero(np.bincount(pairs))
    table = np.zeros((len(rows), len(pair), int(bucket.max(initial=0)) + 1), np.int64)
    cells = np.ravel_multi_index((owners, np.searchsorted(pair, pairs), bucket), table.shape)
    np.add.at(table.reshape(-1), cells, count)
    bounds = [upper_bounds[int(sets[number % len(sets)])] for number in pair.tolist()]
    sizes = [text.count(SEPARATOR) + (text != "") + 1 for text in bounds]
    for owner, n in np.argwhere(table.any(axis=2)).tolist():
        yield rows[owner][0], metrics[int(pair[n]) // len(sets)], bounds[n], table[owner, n, : sizes[n]].copy()


def histogram(parts: Iterable[tuple[str, Counts]]) -> dict[tuple[float, ...], list[int]]:
    """Return bucket counts by their upper bounds, added up from (upper bounds as stored, counts)."""
    counts_of: dict[tuple[float, ...], list[int]] = {}
    for text, counts in parts:
        bounds = tuple(map(float, filter(None, text.split(","))))
        of = counts_of.setdefault(bounds, [0] * (len(bounds) + 1))
        for bucket, count in counts:
            of[bucket] += count
    return counts_of


def quantile(histogram: Mapping[tuple[float, ...], Sequence[int]], q: float) -> float | None:
    """Return the q-quantile of observations counted in buckets (one more count than upper bounds; the last is +Inf).

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
    rank, below, lower = q * total, 0, 0.0
    for bound in sorted(at):
        if at[bound] and below + at[bound] >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / at[bound]
        below += at[bound]
        lower = bound
    return lower
