"""Observations of a series with their weights, and what is made of them: a summary, hours of the week, slices."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from pertoken.evidence import Distribution, HoursOfWeek, Series
from pertoken.provenance import Provenance, worst
from pertoken.state.service import HOURS_OF_WEEK
from pertoken.window.columns import Floats, Ints
from pertoken.window.series.histograms import quantiles


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
        """Return weighted mean and quantiles, with what else a series has."""
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
        """Return the weighted means by number."""
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
    """Return observations of what was counted late, which is as uncertain as a gauge."""
    return points and replace(points, provenance=worst((points.provenance, Provenance.REPORTED)))
