"""Observations of a series: one function computes each kind of `metrics.computations`, whoever asks for it.

Rates and queues are added over the members of a group, so that a 95th percentile is that of the sum; ratios are divided
sum by sum, which weights each member by its denominator.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from pertoken.evidence import Series
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
from pertoken.provenance import Provenance
from pertoken.state.service import HOURS_OF_WEEK, Demand, Quantity
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.columns import Columns, Floats, Ints, Mask, spans, starts
from pertoken.window.series.points import Points

KEY_S = 3600 * 2**21
"""Distance of the keys of two groups: whole hours, and more seconds than any instant has."""
MAX_MINUTE_MS = 600_000
"""What a row of a minute covers at most where its ticks are far apart; a longer one is of an hour."""


class Needed(Enum):
    """Members of which a bucket needs a row. One that lacks a row would show less than there was."""

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

    def where(self, mask: Mask) -> "Buckets":
        """Return the rows of a mask, and the buckets that have any."""
        if mask.all():
            return self
        keys = self.row_keys[mask]
        return Buckets(keys, {name: values[mask] for name, values in self.columns.items()}, starts(keys))

    def having(self, mask: Mask) -> "Buckets":
        """Return the buckets of a mask, with all of their rows."""
        return self if mask.all() else self.where(np.repeat(mask, self.sizes))

    def with_all(self, mask: Mask) -> "Buckets":
        """Return the buckets in which a condition holds for every row."""
        return self.having(self.sum(mask.astype(np.float64)) == self.sizes)

    def with_any(self, mask: Mask) -> "Buckets":
        """Return the buckets in which a condition holds for some row."""
        return self.having(self.sum(mask.astype(np.float64)) > 0)


class GroupedRows:
    """Rows of the owners of each group, in the order of group and time."""

    def __init__(self, rows: Columns, groups: Sequence[Sequence[int]], needed: Needed) -> None:
        """Take rows in the order of owner and time, and the owners of each group, by which groups are numbered."""
        self._rows = rows
        self.groups = len(groups)
        span_of = dict(spans(rows.values[:, 0]))
        members = [(n, span_of[owner]) for n, owners in enumerate(groups) for owner in owners if owner in span_of]
        lengths = [span.stop - span.start for _, span in members]
        index = np.concatenate([np.arange(span.start, span.stop) for _, span in members] or [np.empty(0, np.int64)])
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
        case SampleShare():
            return _sample_share(grouped.buckets(columns_of(computation)), computation)
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


def _sample_share(buckets: Buckets, sample_share: SampleShare) -> Observations:
    return _over_members(buckets, buckets[sample_share.counted] / np.maximum(buckets["samples"], 1), summed=False)


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
    """Return the index of dispersion of a count per minute, in each hour of which half the minutes are there.

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
