"""Evidence series of a window: points over its buckets, and how each is made."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TypeVar

import numpy as np

from pertoken.evidence import Distribution, HoursOfWeek, Series
from pertoken.metrics import SERIES
from pertoken.metrics.series import (
    Computation,
    Counted,
    Dispersion,
    Gauge,
    Quotient,
    Rate,
    Ratio,
    SampleShare,
    TimeShare,
    columns_of,
    counters_of,
)
from pertoken.provenance import Provenance, worst
from pertoken.state.service import HOURS_OF_WEEK, Demand, Quantity
from pertoken.store.query.buckets import SEPARATOR
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.columns import Columns, Floats, Ints, Mask, slices, starts, whole_numbers

MAX_LOOKED_UP = 1_000_000
"""Largest value of a table by value."""
Counts = Iterable[tuple[int, ...]]
"""(bucket, observations in it), in any order; a bucket may be there several times."""


def counts_of(
    rows: Sequence[tuple[int, str, str]], metrics: Sequence[str], upper_bounds: Mapping[int, str]
) -> Iterator[tuple[int, str, str, Ints]]:
    """Yield (epoch_id, metric, upper bounds as stored, observations by bucket) of `buckets.histogram_buckets`.

    `upper_bounds` are by the set ids that were passed to it, in that order. Other metrics and sets are left out.
    Raises ImpossibleValues for a value that is no whole number.
    """
    if not rows:
        return
    keys = [whole_numbers(row[1]) for row in rows]
    count = whole_numbers(SEPARATOR.join(row[2] for row in rows))
    owners = np.repeat(np.arange(len(rows)), [len(key) for key in keys])
    key, position = _distinct(np.concatenate(keys))
    table = np.zeros((len(rows), len(key)), np.int64)
    np.add.at(table.reshape(-1), owners * len(key) + position, count)
    rest, metric = np.divmod(key, len(metrics) + 1)
    bucket, of_set = np.divmod(rest, len(upper_bounds) + 1)
    is_known = (metric < len(metrics)) & (of_set < len(upper_bounds)) & (bucket >= 0)
    bounds_of = list(upper_bounds.values())
    for pair in sorted({*zip(metric[is_known].tolist(), of_set[is_known].tolist(), strict=True)}):
        bounds = bounds_of[pair[1]]
        size = bounds.count(SEPARATOR) + (bounds != "") + 1
        columns = np.flatnonzero(is_known & (metric == pair[0]) & (of_set == pair[1]) & (bucket < size))
        of_pair = np.zeros((len(rows), size), np.int64)
        of_pair[:, bucket[columns]] = table[:, columns]
        for owner in np.flatnonzero(of_pair.any(axis=1)).tolist():
            yield rows[owner][0], metrics[pair[0]], bounds, of_pair[owner]


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values, rising, and the position of each value among them.

    Small values, as in all databases that are not damaged, are looked up: sorting takes seven times as long.
    """
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
        total = counts_of.setdefault(bounds, [0] * (len(bounds) + 1))
        for bucket, count in counts:
            if 0 <= bucket < len(total):
                total[bucket] += count
    return counts_of


def quantile(histogram: Mapping[tuple[float, ...], Sequence[int]], q: float) -> float | None:
    """Return the q-quantile of observations, as `quantiles` returns several."""
    values = quantiles(histogram, (q,))
    return None if values is None else values[0]


def quantiles(histogram: Mapping[tuple[float, ...], Sequence[int]], shares: Sequence[float]) -> list[float] | None:
    """Return quantiles of observations counted in buckets (one more count than upper bounds; the last is +Inf).

    Several bucket sets (an engine changed its bounds) are merged on the union of their bounds. Linear within the
    bucket; an observation above the last bound is reported as that bound. None if there were no observations.
    """
    count_by_bound: dict[float, int] = defaultdict(int)
    beyond = 0
    for bounds, counts in histogram.items():
        for bound, count in zip(bounds, counts, strict=False):
            count_by_bound[bound] += count
        beyond += counts[-1]
    total = sum(count_by_bound.values()) + beyond
    if total == 0:
        return None
    rising = sorted(count_by_bound.items())
    return [_bucket_quantile(rising, q * total) for q in shares]


def _bucket_quantile(rising: Sequence[tuple[float, int]], rank: float) -> float:
    below, lower = 0, 0.0
    for bound, count in rising:
        if count and below + count >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / count
        below += count
        lower = bound
    return lower


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Observations of one series: a value and its weight for each bucket. There is at least one with a weight."""

    ts: Ints
    """Start of each bucket."""
    values: Floats
    weights: Floats
    provenance: Provenance
    factor: float = 1
    """Factor on values, means and quantiles..."""
    highest: float = math.inf
    """...up to this."""

    def summary(self, *, by_hour: bool = False, distribution: Distribution | None = None) -> Series:
        """Return the series with its weighted mean and quantiles."""
        values, reached = self._ordered()
        mean = float((self.values * self.weights).sum() / reached[-1])
        p50, p95 = (self._value(_quantile(values, reached, q)) for q in (0.5, 0.95))
        largest = self._value(float(values[-1]))
        return Series(self._value(mean), p50, p95, largest, len(values), self.provenance, (), by_hour, distribution)

    def quantile(self, q: float) -> float:
        """Return a weighted quantile."""
        return self._value(_quantile(*self._ordered(), q))

    def hours(self) -> HoursOfWeek:
        """Return the weighted mean of each hour of the week."""
        return self._means(hour_of_week(self.ts), HOURS_OF_WEEK)

    def slices(self, start: int, slice_s: int, count: int) -> tuple[float | None, ...]:
        """Return the weighted mean of each slice from `start`; None where nothing was observed."""
        number = (self.ts - start) // slice_s
        inside = (number >= 0) & (number < count)
        observed = replace(self, values=self.values[inside], weights=self.weights[inside])
        return observed._means(number[inside], count)

    def _means(self, number: Ints, count: int) -> tuple[float | None, ...]:
        weight, total = (np.bincount(number, array, count) for array in (self.weights, self.values * self.weights))
        means = np.divide(total, weight, out=np.zeros(count), where=weight != 0)
        values = np.minimum(self.highest, means * self.factor).tolist()
        return tuple(value if total else None for value, total in zip(values, weight.tolist(), strict=True))

    def _ordered(self) -> tuple[Floats, Floats]:
        """Return the values in order, and the weight reached with each."""
        order = np.argsort(self.values, kind="stable")
        return self.values[order], np.cumsum(self.weights[order])

    def _value(self, value: float) -> float:
        return min(self.highest, value * self.factor)


def _quantile(values: Floats, reached: Floats, q: float) -> float:
    return float(values[min(int(np.searchsorted(reached, q * reached[-1], "left")), len(values) - 1)])


Instants = TypeVar("Instants", int, Ints)
"""One epoch second, or several."""
THURSDAY = 3
"""Day of the week of 1970-01-01, Monday being 0."""


def hour_of_week(ts: Instants) -> Instants:
    """Return the hour of the week of an instant, or of each of several; 0 for Monday 00:00 UTC."""
    return (ts // 3600 + 24 * THURSDAY) % HOURS_OF_WEEK


def summarize(buckets: Mapping[tuple[float, ...], Sequence[int]]) -> Series | None:
    """Return the summary of a histogram's observations, exact to the bucket."""
    figures = quantiles(buckets, (0.5, 0.95, 1.0))
    if figures is None:
        return None
    p50, p95, largest = figures
    n, total = 0, 0.0
    count_by_bound: dict[float, float] = defaultdict(float)
    for bounds, counts in buckets.items():
        edges = (0.0, *bounds, math.inf)
        for lower, upper, count in zip(edges, edges[1:], counts, strict=False):
            # The middle of the bucket; the open last one counts as its lower edge.
            middle = lower if upper == math.inf else (lower + upper) / 2
            n, total = n + count, total + count * middle
            count_by_bound[upper] += count
    return Series(total / n, p50, p95, largest, n, Provenance.COUNTER, tuple(sorted(count_by_bound.items())))


def weighted(ts: Ints, values: Floats, weights: Floats, provenance: Provenance) -> Points | None:
    """Return the observations; None without any weight."""
    return Points(ts, values, weights, provenance) if len(values) and weights.sum() > 0 else None


def single(value: float, provenance: Provenance) -> Series:
    """Return a series of one observation."""
    return Series(value, value, value, value, 1, provenance)


def reported(points: Points | None) -> Points | None:
    """Return observations that were counted late, which makes them as uncertain as a gauge."""
    return points and replace(points, provenance=worst((points.provenance, Provenance.REPORTED)))


KEY_S = 3600 * 2**21
"""Distance of the keys of two groups: whole hours, and more seconds than any instant has."""
MAX_MINUTE_MS = 600_000
"""Longest time of a row of a minute where its ticks are far apart; a longer one is of an hour."""


class Needed(Enum):
    """Members that need a row in a bucket. A bucket that lacks one would show less than there was."""

    RUNNING = "each that ran then: a member runs from its first to its last observed row"
    ALL = "each of the group"
    ANY = "one"


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Some columns of rows by bucket; a bucket is the rows of one key, one row for a group of one member."""

    row_keys: Ints
    columns: Mapping[str, Floats]
    starts: Ints
    """Index of the first row of each bucket."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @property
    def keys(self) -> Ints:
        """Key of each bucket, rising."""
        return self.row_keys[self.starts]

    @property
    def sizes(self) -> Ints:
        """Rows of each bucket."""
        sizes: Ints = np.diff(self.starts, append=len(self.row_keys))
        return sizes

    def sum(self, values: Floats) -> Floats:
        """Add a value of each row by bucket."""
        return np.add.reduceat(values, self.starts) if len(self) else np.empty(0)

    def where(self, mask: Mask) -> Buckets:
        """Return the rows of a mask, and the buckets that have any."""
        if mask.all():
            return self
        keys = self.row_keys[mask]
        return Buckets(keys, {name: values[mask] for name, values in self.columns.items()}, starts(keys))

    def having(self, mask: Mask) -> Buckets:
        """Return the buckets of a mask, with all of their rows."""
        return self if mask.all() else self.where(np.repeat(mask, self.sizes))

    def with_all(self, mask: Mask) -> Buckets:
        """Return the buckets in which a condition holds for every row."""
        return self.having(self.sum(mask.astype(np.float64)) == self.sizes)

    def with_any(self, mask: Mask) -> Buckets:
        """Return the buckets in which a condition holds for some row."""
        return self.having(self.sum(mask.astype(np.float64)) > 0)


class GroupedRows:
    """Rows of the owners of each group, in the order of group and time."""

    def __init__(self, rows: Columns, groups: Sequence[Sequence[int]], needed: Needed) -> None:
        """Take rows in the order of owner and time, and the owners of each group, by which groups are numbered."""
        self._rows = rows
        self.groups = len(groups)
        slice_of = dict(slices(rows.values[:, 0]))
        members = [(n, slice_of[owner]) for n, owners in enumerate(groups) for owner in owners if owner in slice_of]
        lengths = [owner_slice.stop - owner_slice.start for _, owner_slice in members]
        index = np.concatenate(
            [np.arange(owner_slice.start, owner_slice.stop) for _, owner_slice in members] or [np.empty(0, np.int64)]
        )
        member = np.repeat(np.arange(len(members)), lengths)
        group = np.repeat(np.array([n for n, _ in members], np.int64), lengths)
        keys = group * KEY_S + rows.ints("ts")[index]
        if needed is Needed.RUNNING:
            observed = rows.ints("observed_ms")[index] > 0
            index, member, keys = index[observed], member[observed], keys[observed]
        first = starts(member)
        begins, ends = np.sort(keys[first]), np.sort(keys[np.append(first[1:], len(keys))[: len(first)] - 1])
        if not (keys[1:] >= keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            index, keys = index[order], keys[order]
        every = Buckets(keys, {"index": index}, starts(keys))
        if needed is Needed.RUNNING:
            running = np.searchsorted(begins, every.keys, "right") - np.searchsorted(ends, every.keys, "left")
            every = every.having(every.sizes == running)
        elif needed is Needed.ALL:
            every = every.having(every.sizes == np.array([*map(len, groups)], np.int64)[every.keys // KEY_S])
        self._every = every
        self._index: Ints = every.columns["index"].astype(np.int64)

    def buckets(self, names: Sequence[str]) -> Buckets:
        """Return all buckets with some of their columns."""
        columns = {name: self._rows.floats(name)[self._index] for name in names}
        return Buckets(self._every.row_keys, columns, self._every.starts)

    @property
    def keys(self) -> Ints:
        """Key of each bucket, rising."""
        return self._every.keys

    def totals(self, keys: Ints, values: Floats) -> Floats:
        """Add up values by the group of their keys."""
        totals: Floats = np.bincount(keys // KEY_S, values, self.groups).astype(np.float64)
        return totals

    @cached_property
    def observed_ms(self) -> Floats:
        """Time in which all members of each group were observed."""
        observed_ms = self._rows.floats("observed_ms")[self._index]
        least = np.minimum.reduceat(observed_ms, self._every.starts) if len(self._every) else observed_ms
        return self.totals(self.keys, least)

    @cached_property
    def by_hour(self) -> Mask:
        """Whether some buckets of each group are of an hour, and not of a minute."""
        return self._highest("duration_ms") > MAX_MINUTE_MS

    @cached_property
    def busy_provenance(self) -> Ints:
        """Worst provenance of the busy times of each group: `BOUND` where one is an upper bound."""
        return self._highest("busy_provenance")

    def _highest(self, name: str) -> Ints:
        """Return the highest value of a column by group, 0 at least."""
        highest = np.zeros(self.groups, np.int64)
        np.maximum.at(highest, self._every.row_keys // KEY_S, self._rows.ints(name)[self._index])
        return highest


MINUTE_MS = 60_000
MIN_MINUTES = 30
"""Minutes of an hour from which its dispersion is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Value and weight of one series in the buckets of all groups."""

    keys: Ints
    values: Floats
    weights: Floats
    provenance: Provenance | Ints = Provenance.COUNTER
    """Of all groups, or of each."""
    factors: Floats | None = None
    """Factor on the values of each group; NaN where a group was not measured."""
    highest: float = math.inf

    def points(self, group: int) -> Points | None:
        """Return the observations of one group; None if it was not measured."""
        first, last = np.searchsorted(self.keys, (group * KEY_S, (group + 1) * KEY_S))
        factor = 1.0 if self.factors is None else float(self.factors[group])
        weights = self.weights[first:last]
        if math.isnan(factor) or not weights.sum() > 0:
            return None
        provenance = (
            self.provenance if isinstance(self.provenance, Provenance) else Provenance.of_stored(self.provenance[group])
        )
        ts = self.keys[first:last] - group * KEY_S
        return Points(ts, self.values[first:last], weights, provenance, factor, self.highest)


def observe(computation: Computation, grouped: GroupedRows, counted: GroupedRows | None = None) -> Observations:
    """Compute a series of all groups.

    `counted` are the deltas of further counters of the same groups, which `Quotient` and `TimeShare` need. Raises
    TypeError for `Histogram` and `Derived`, which are not computed from rows by bucket.
    """
    match computation:
        case Rate():
            return _rate(grouped.buckets(columns_of(computation)), computation)
        case Ratio():
            return _ratio(grouped, computation)
        case Gauge():
            return _gauge(grouped, computation)
        case SampleShare(counted=column):
            buckets = grouped.buckets(columns_of(computation))
            return _over_members(buckets, buckets[column] / np.maximum(buckets["samples"], 1), summed=False)
        case Dispersion():
            return _dispersion(grouped.buckets(columns_of(computation)), computation)
        case Quotient() | TimeShare() if counted is not None:
            return _of_counters(grouped, counted, computation)
        case _:
            raise TypeError(f"{computation} is not computed from rows by bucket")


def _rate(buckets: Buckets, rate: Rate) -> Observations:
    counted = buckets.with_all(~np.isnan(buckets[rate.counter]) & (buckets["duration_ms"] > 0))
    ms = counted["duration_ms"]
    return Observations(counted.keys, counted.sum(counted[rate.counter] / ms) * rate.per_ms, counted.sum(ms))


def _ratio(grouped: GroupedRows, ratio: Ratio) -> Observations:
    """Divide sums. A bucket in which a member has the denominator without the numerator is left out."""
    buckets = grouped.buckets(columns_of(ratio))
    divisible = buckets.where(buckets[ratio.below] > 0)
    divisible = divisible.with_all(~np.isnan(divisible[ratio.above]))
    below = divisible.sum(divisible[ratio.below])
    quotients = divisible.sum(divisible[ratio.above]) / below * ratio.scale
    provenance = grouped.busy_provenance if "busy_ms" in columns_of(ratio) else Provenance.COUNTER
    return Observations(divisible.keys, quotients, below, provenance)


def _gauge(grouped: GroupedRows, gauge: Gauge) -> Observations:
    """Return a gauge's mean in each bucket in which all members reported it; while busy, over the busy share.

    The share is of all buckets with work, since an engine may count its time later than the gauge shows it. Where a
    group counted no time in all of them, it is the gauge itself: a server that hangs holds requests and works for none.
    """
    buckets = grouped.buckets(columns_of(gauge))
    factors = None
    if gauge.while_busy:
        (stored,) = gauge.stored
        buckets = buckets.with_any((buckets["busy_ms"] > 0) | (buckets[f"{stored}_sum"] > 0))
        factors = _busy_factors(grouped, buckets)
    values = sum((_mean(buckets, stored) for stored in gauge.stored), np.zeros(len(buckets.row_keys))) / gauge.per_unit
    return _over_members(buckets, values, summed=gauge.summed, factors=factors, highest=gauge.highest)


def _busy_factors(grouped: GroupedRows, buckets: Buckets) -> Floats:
    """Return observed over busy time of each group, 1 at least; NaN where no busy time is known."""
    busy_ms, group_keys = buckets["busy_ms"], buckets.row_keys
    is_timed = ~np.isnan(busy_ms)
    busy = grouped.totals(group_keys[is_timed], busy_ms[is_timed])
    observed = grouped.totals(group_keys, buckets["observed_ms"])
    factors = np.maximum(1.0, np.divide(observed, busy, out=np.ones(grouped.groups), where=busy > 0))
    return np.where(grouped.totals(group_keys, is_timed.astype(np.float64)) > 0, factors, np.nan)


def _mean(buckets: Buckets, stored: str) -> Floats:
    """Return the mean of a gauge in each row; NaN where it was not read."""
    samples = buckets[f"{stored}_n"]
    return buckets[f"{stored}_sum"] / np.where(samples > 0, samples, np.nan)


def _over_members(
    buckets: Buckets, values: Floats, *, summed: bool, factors: Floats | None = None, highest: float = math.inf
) -> Observations:
    """Add a value of each row, or take the mean, over the buckets in which all members have it."""
    columns = {"value": values, "ms": buckets["duration_ms"]}
    full = Buckets(buckets.row_keys, columns, buckets.starts).with_all(~np.isnan(values))
    total = full.sum(full["value"])
    members = 1 if summed else full.sizes
    return Observations(full.keys, total / members, full.sum(full["ms"]), Provenance.REPORTED, factors, highest)


def _dispersion(buckets: Buckets, count: Dispersion) -> Observations:
    """Return the index of dispersion of a count per minute, in each hour with at least half of its minutes.

    It is the variance over the mean: 1 of a Poisson process. The load of an hour is taken as even. Cox and Lewis, The
    Statistical Analysis of Series of Events (1966), chapter 4.
    """
    per_minute = _rate(buckets, Rate(count.counter, MINUTE_MS))
    members = buckets.sizes[np.isin(buckets.keys, per_minute.keys)]
    minutes = per_minute.weights / np.maximum(members, 1) <= 1.5 * MINUTE_MS
    keys, counts = per_minute.keys[minutes], per_minute.values[minutes]
    begins = starts(keys // HOUR)
    if not len(keys):
        return Observations(keys, counts, counts)
    n = np.diff(begins, append=len(keys))
    mean = np.add.reduceat(counts, begins) / n
    variance = np.add.reduceat((counts - np.repeat(mean, n)) ** 2, begins) / np.maximum(n - 1, 1)
    enough = (n >= MIN_MINUTES) & (mean > 0)
    return Observations(keys[begins][enough], variance[enough] / mean[enough], n[enough].astype(np.float64))


def _of_counters(grouped: GroupedRows, counted: GroupedRows, computation: Counted) -> Observations:
    """Divide deltas of counters, added over the members of each bucket in which one of them counted."""
    deltas = counted.buckets(counters_of(computation))
    deltas = deltas.having(np.isin(deltas.keys, grouped.keys))
    totals = {name: deltas.sum(np.nan_to_num(deltas[name])) for name in deltas.columns}
    if isinstance(computation, TimeShare):
        return _time_share(grouped, deltas.keys, totals[computation.counter])
    above = _total(totals, computation.above, len(deltas))
    if computation.below is not None:
        below = _total(totals, computation.below, len(deltas))
        divisible: Mask = below > 0
        quotients = above[divisible] / below[divisible] + computation.plus
        return Observations(deltas.keys[divisible], quotients, below[divisible])
    rows = grouped.buckets(("busy_ms",))
    busy_ms = rows.sum(np.nan_to_num(rows["busy_ms"]))[np.searchsorted(rows.keys, deltas.keys)]
    counted_busy = (deltas.sum((~np.isnan(deltas[computation.above[0]])).astype(np.float64)) > 0) & (busy_ms > 0)
    quotients = above[counted_busy] / (busy_ms[counted_busy] / 1000)
    return Observations(deltas.keys[counted_busy], quotients, busy_ms[counted_busy], grouped.busy_provenance)


def _total(totals: Mapping[str, Floats], names: tuple[str, ...], length: int) -> Floats:
    return sum((totals[name] for name in names), np.zeros(length))


def _time_share(grouped: GroupedRows, keys: Ints, ms: Floats) -> Observations:
    """Return the share of observed time that a counter rose by; a group in which it never rose is not measured."""
    rows = grouped.buckets(("observed_ms",))
    counted_ms = np.zeros(len(rows))
    counted_ms[np.searchsorted(rows.keys, keys)] = ms
    observed_ms = rows.sum(rows["observed_ms"])
    factors = np.where(grouped.totals(keys, ms) > 0, 1.0, np.nan)
    observed = observed_ms > 0
    shares = counted_ms[observed] / observed_ms[observed]
    return Observations(rows.keys[observed], shares, observed_ms[observed], Provenance.REPORTED, factors)


def demand(rows: GroupedRows, lengths: Mapping[str, Series | None], *, late: bool) -> Demand:
    """Return the demand in the rows of one group, all epochs that served, and the histograms of `prompt_len` and
    `generated_len`. `late`: tokens are counted when a request ends, so that a bucket's are partly of buckets before."""
    counts = observe(SERIES["requests_s"].computation, rows).points(0)
    requests = None if counts is None else counts.summary()
    counted = Provenance.REPORTED if late else Provenance.COUNTER
    cached = observe(SERIES["cached_share"].computation, rows).points(0)
    buckets = "buckets of up to an hour" if rows.by_hour[0] else "minutes"
    source = f"95th percentile of {requests.n if requests else 0:,} {buckets}, all deployments together"
    return Demand(
        requests_per_s=None if requests is None else Quantity(requests.p95, counted, source),
        requests_by_hour_of_week=(None,) * HOURS_OF_WEEK if counts is None else counts.hours(),
        prompt_len=_length(lengths.get("prompt_len"), rows, "prompt_tokens"),
        output_len=_length(lengths.get("generated_len"), rows, "generated_tokens"),
        cached_share=None
        if cached is None
        else Quantity(min(1.0, cached.summary().mean), counted, "cached tokens over prompt tokens"),
    )


def _length(histogram: Series | None, rows: GroupedRows, tokens: str) -> Quantity | None:
    """Return the mean length by histogram, else by tokens over requests."""
    if histogram is not None:
        return Quantity(histogram.mean, histogram.provenance, f"histogram of {histogram.n:,} requests")
    mean = observe(Ratio(tokens, "requests_finished"), rows).points(0)
    return (
        None if mean is None else Quantity(mean.summary().mean, Provenance.COUNTER, "tokens over requests that ended")
    )
