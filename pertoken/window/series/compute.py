"""Observations of a series: one function computes each kind of `metrics.computations`, whoever asks for it.

Rates and queues are added over the members of a group, so that a 95th percentile is that of the sum; ratios are divided
sum by sum, which weights each member by its denominator.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pertoken.metrics.computations import (
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
from pertoken.store.schema.rollup_tables import HOUR
from pertoken.window.columns import Floats, Ints, Mask, starts
from pertoken.window.series.grouped import KEY_S, Buckets, GroupedRows
from pertoken.window.series.points import Points

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
