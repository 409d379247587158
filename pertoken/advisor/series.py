"""Series of one deployment, or of several added up minute by minute, from roll-up rows.

A *minute* here is the tuple of rows of all members in one minute, one member for a single deployment. Rates and queues
are added, so that a 95th percentile is that of the sum; ratios are divided sum by sum, which weights each member by its
denominator.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pertoken.costs.quantiles import quantile
from pertoken.evidence import Series
from pertoken.provenance import Provenance

Minutes = Sequence[tuple[Any, ...]]


def together(members: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the minutes in which every member that ran then was observed, oldest first.

    A member runs from its first to its last row. A minute that lacks one of them would show less than was served.
    """
    observed = [rows for each in members if (rows := [row for row in each if row.observed_ms])]
    first, last = (sorted(rows[end].ts for rows in observed) for end in (0, -1))
    by_ts: dict[int, list[Any]] = defaultdict(list)
    for rows in observed:
        for row in rows:
            by_ts[row.ts].append(row)
    return [
        tuple(by_ts[ts]) for ts in sorted(by_ts) if len(by_ts[ts]) == bisect_right(first, ts) - bisect_left(last, ts)
    ]


def busy(minutes: Minutes) -> list[tuple[Any, ...]]:
    """Return the minutes in which a member was busy, with the rows of those that were."""
    return [rows for minute in minutes if (rows := tuple(row for row in minute if row.busy_ms))]


def with_busy(rows: Sequence[Any]) -> list[Any]:
    """Return minutes of one member; one that works but exposes no time is busy for at most all of its observed time.

    It stays unknown where no minute's busy time is known.
    """
    if all(row.busy_ms is None for row in rows):
        return list(rows)
    return [
        row._replace(busy_ms=row.observed_ms) if row.busy_ms is None and row.busy_provenance else row for row in rows
    ]


def busy_provenance(minutes: Minutes) -> Provenance:
    """Return the worst provenance of the busy times: `BOUND` where one of them is an upper bound."""
    return Provenance(max((row.busy_provenance or 0 for minute in minutes for row in minute), default=0))


def while_busy(
    minutes: Minutes,
    of: Callable[[Minutes, str, float], Series | None],
    name: str,
    scale: float,
    largest: float = math.inf,
) -> Series | None:
    """Return a gauge while the members work: its mean over each minute in which they did, over their busy share.

    The share is of all these minutes, since an engine may count its time later than the gauge shows it.
    """
    active = [minute for minute in minutes if any(row.busy_ms or getattr(row, f"{name}_sum") for row in minute)]
    busy_ms = sum(row.busy_ms or 0 for minute in active for row in minute)
    mean = of(active, name, scale)
    if mean is None or not busy_ms:
        return None
    factor = max(1.0, sum(row.observed_ms for minute in active for row in minute) / busy_ms)
    values = {each: min(largest, getattr(mean, each) * factor) for each in ("mean", "p50", "p95", "max")}
    return replace(mean, **values)


def rates(minutes: Minutes, name: str, per_ms: float = 1000) -> list[tuple[int, float, float]]:
    """Return (ts, rate of all members together, weight) of each minute in which all of them counted."""
    return [
        (
            minute[0].ts,
            sum(getattr(row, name) / row.duration_ms for row in minute) * per_ms,
            sum(row.duration_ms for row in minute),
        )
        for minute in minutes
        if all(getattr(row, name) is not None and row.duration_ms for row in minute)
    ]


def rate(minutes: Minutes, name: str, per_ms: float = 1000) -> Series | None:
    """Return the rate of a counter, all members together."""
    found = rates(minutes, name, per_ms)
    return weighted([value for _, value, _ in found], [weight for *_, weight in found], Provenance.COUNTER)


def ratio(
    minutes: Minutes, above: str, below: str, provenance: Provenance = Provenance.COUNTER, scale: float = 1
) -> Series | None:
    """Return the sum of one column over the sum of another, weighted by the latter."""
    pairs = []
    for minute in minutes:
        rows = [row for row in minute if getattr(row, above) is not None and getattr(row, below)]
        if rows and len(rows) == len([row for row in minute if getattr(row, below)]):
            whole = sum(getattr(row, below) for row in rows)
            pairs.append((sum(getattr(row, above) for row in rows) / whole * scale, whole))
    return weighted([value for value, _ in pairs], [weight for _, weight in pairs], provenance)


def gauge(minutes: Minutes, name: str, scale: float) -> Series | None:
    """Return the sum over all members of a gauge's mean in each minute in which all of them reported it."""
    pairs = [
        (
            sum(getattr(row, f"{name}_sum") / getattr(row, f"{name}_n") for row in minute) / scale,
            sum(getattr(row, f"{name}_n") for row in minute),
        )
        for minute in minutes
        if all(getattr(row, f"{name}_n") and getattr(row, f"{name}_sum") is not None for row in minute)
    ]
    return weighted([value for value, _ in pairs], [weight for _, weight in pairs], Provenance.REPORTED)


def mean_gauge(minutes: Minutes, name: str, scale: float) -> Series | None:
    """Return the mean over all members of a gauge, weighted by their samples."""
    return ratio(minutes, f"{name}_sum", f"{name}_n", Provenance.REPORTED, 1 / scale)


def of_counts(
    counts: Sequence[Mapping[int, Mapping[str, int]]],
    minutes: Minutes,
    of: Callable[[Mapping[str, int], int | None], float | None],
    weight: str | None,
) -> Series | None:
    """Return a ratio of further counters, added over the members, of each minute in which they counted.

    `counts` are deltas by minute and metric of each member; `of` makes the ratio from their sum and the busy time, and
    `weight` is the metric that weights a minute, or None for its busy time.
    """
    busy_ms = {minute[0].ts: sum(row.busy_ms or 0 for row in minute) for minute in minutes}
    values, weights = [], []
    for ts, ms in busy_ms.items():
        summed: dict[str, int] = defaultdict(int)
        for member in counts:
            for metric, delta in member.get(ts, {}).items():
                summed[metric] += delta
        value = of(summed, ms) if summed else None
        if value is not None:
            values.append(value)
            weights.append(summed.get(weight, 0) if weight else ms)
    return weighted(values, weights, Provenance.COUNTER)


def of_devices(
    rows: Sequence[Sequence[Any]], value: Callable[[Any], float | None], *, mean: bool = False
) -> Series | None:
    """Return the sum (or mean) over devices of each minute in which all of them were read; `rows` are by device."""
    by_ts: dict[int, list[float]] = defaultdict(list)
    for minutes in rows:
        for row in minutes:
            if (number := value(row)) is not None:
                by_ts[row.ts].append(number)
    full = [sum(each) / (len(each) if mean else 1) for each in by_ts.values() if len(each) == len(rows)]
    return weighted(full, [1] * len(full), Provenance.REPORTED)


def histogram(buckets: Mapping[tuple[float, ...], Sequence[int]]) -> Series | None:
    """Return the summary of a histogram's observations, exact to the bucket."""
    p50, p95, largest = (quantile(buckets, share) for share in (0.5, 0.95, 1.0))
    if p50 is None or p95 is None or largest is None:
        return None
    n, total = 0, 0.0
    at: dict[float, float] = defaultdict(float)
    for bounds, counts in buckets.items():
        edges = (0.0, *bounds, math.inf)
        for lower, upper, count in zip(edges, edges[1:], counts, strict=False):
            # The middle of the bucket; the open last one counts as its lower edge.
            middle = lower if upper == math.inf else (lower + upper) / 2
            n, total = n + count, total + count * middle
            at[upper] += count
    return Series(total / n, p50, p95, largest, n, Provenance.COUNTER, tuple(sorted(at.items())))


def weighted(values: Sequence[float], weights: Sequence[float], provenance: Provenance) -> Series | None:
    """Return weighted mean and quantiles; None without any weight."""
    total = sum(weights)
    if not values or total <= 0:
        return None
    ordered = sorted(zip(values, weights, strict=True))
    mean = sum(value * weight for value, weight in ordered) / total

    def at(q: float) -> float:
        reached = 0.0
        for value, weight in ordered:
            reached += weight
            if reached >= q * total:
                return value
        return ordered[-1][0]

    return Series(mean, at(0.5), at(0.95), ordered[-1][0], len(values), provenance)


def single(value: float, provenance: Provenance) -> Series:
    """Return a series of one observation."""
    return Series(value, value, value, value, 1, provenance)
