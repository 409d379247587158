"""Observations of deployments and devices that are looked at alone, found for all of them at once.

Equal to those that `points` finds of one owner's rows. Measured: twelve series of 1,000 deployments in a week of hours
take 0.5 s of CPU, and 2.5 s one deployment at a time.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from pertoken.metrics import QUOTIENTS, DeviceMetric, Quotient, RollUp, rolled
from pertoken.provenance import Provenance
from pertoken.units import HOUR_MS
from pertoken.window.columns import NULL, Columns, Floats, Ints, Mask, starts
from pertoken.window.series import points as series
from pertoken.window.series.points import Buckets, Points

_TS_BITS = 32
"""Bits of a row's key that are its `ts`."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """Definition of a series of deployments."""

    columns: Sequence[str]
    """Columns that it is made of."""
    points: Callable[[Buckets], Points | None]
    """Computes its observations."""


def _rate(name: str, per_ms: float = 1000) -> _Definition:
    return _Definition((name, "duration_ms"), partial(series.rate, name=name, per_ms=per_ms))


def _ratio(above: str, below: str, scale: float = 1) -> _Definition:
    return _Definition((above, below), partial(series.ratio, above=above, below=below, scale=scale))


_OF_TIME = {
    "generated_tok_s": _rate("generated_tokens"),
    "busy_generated_tok_s": _ratio("generated_tokens", "busy_ms", 1000),
    "busy": _ratio("busy_ms", "observed_ms"),
}
"""Series that are made of `measured.DEPLOYMENT_TIME`."""
_OF_DEPLOYMENTS = {
    "prompt_tok_s": _rate("prompt_tokens"),
    "computed_tok_s": _rate("computed_tokens"),
    "cached_share": _ratio("cached_tokens", "prompt_tokens"),
    "requests_s": _rate("requests_finished"),
    "waiting": _Definition(("waiting_1e2_sum", "waiting_1e2_n"), partial(series.gauge, name="waiting_1e2", scale=1e2)),
    "preemptions": _rate("preemptions", HOUR_MS),
}
_BY_BUSY_TIME = ("busy_generated_tok_s", "busy")
"""Series that are as uncertain as the busy time."""
_WHILE_BUSY = {"running": ("running_1e2", 1e2, False), "kv_use": ("kv_use_1e4", 1e4, True)}
"""Series -> stored name, scale, and whether it has the largest value 1."""
OF_TIME = frozenset(_OF_TIME)
COUNTED = {name: quotient for name, quotient in QUOTIENTS.items() if name != "load_s"}
"""Series that are made of two further counters of an engine, but for one that is a bound."""
OF_DEPLOYMENTS = frozenset((*_OF_DEPLOYMENTS, *_WHILE_BUSY))
_GAUGES: Mapping[str, DeviceMetric] = {metric.series: metric for metric in rolled(RollUp.GAUGE) if metric.series}
OF_DEVICES = frozenset(_GAUGES)


class Owners:
    """Rows of several owners in the order of `columns.columns`, of which some are buckets."""

    def __init__(self, rows: Columns, buckets: Mask) -> None:
        self._rows = rows
        ids = rows.values[:, 0]
        self._firsts = starts(ids)
        self.ids: Ints = ids[self._firsts]
        """Ids of the owners, rising."""
        self._numbers = {owner_id: number for number, owner_id in enumerate(self.ids.tolist())}
        number = np.repeat(np.arange(len(self.ids)), np.diff(self._firsts, append=len(rows)))
        self._buckets: Ints | slice = slice(None) if buckets.all() else np.flatnonzero(buckets)
        self.ts: Ints = rows.ints("ts")[self._buckets]
        """Start of each bucket."""
        self.number: Ints = number[self._buckets]
        """Number of the owner of each bucket, from 0 in the order of `ids`."""
        self._edges = np.searchsorted(self.number, np.arange(len(self.ids) + 1))
        self._replaced: dict[str, Ints] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def number_of(self, owner_id: int) -> int | None:
        """Return the number of an owner; None for one without rows."""
        return self._numbers.get(owner_id)

    def any_row(self, mask: Mask) -> Mask:
        """Return for all rows whether a condition holds for any row of the same owner."""
        anywhere = np.logical_or.reduceat(mask, self._firsts) if len(mask) else mask
        return np.repeat(anywhere, np.diff(self._firsts, append=len(mask)))

    def column(self, name: str) -> Ints:
        """Return a column of the buckets."""
        return self._replaced.get(name, self._rows.ints(name))[self._buckets]

    def replace(self, name: str, values: Ints) -> None:
        """Take other values of a column of the rows."""
        self._replaced[name] = values

    def buckets(self, names: Sequence[str]) -> Buckets:
        """Return the buckets with some of their columns; their `ts` is their place."""
        place = np.arange(len(self.ts))
        index = {name: n for n, name in enumerate(("ts", *names))}
        return Buckets(Columns(index, np.array([place, *map(self.column, names)]).T), place)

    def largest(self, name: str) -> Ints:
        """Return the largest value of a column in the buckets of each owner; `NULL` of one without buckets."""
        largest, (first, last) = np.full(len(self), NULL), (self._edges[:-1], self._edges[1:])
        some = first < last
        if some.any():
            largest[some] = np.maximum.reduceat(self.column(name), first[some])
        return largest

    def sums(self, places: Ints, values: Floats) -> Floats:
        """Add the values of some buckets by owner."""
        sums: Floats = np.bincount(self.number[places], values, len(self)).astype(np.float64)
        return sums

    def edges(self, places: Ints) -> Sequence[int]:
        """Return where the buckets of each owner begin among some buckets, and their number."""
        edges: list[int] = np.searchsorted(places, self._edges).tolist()
        return edges

    def keys(self) -> Ints:
        """Return the key of each bucket by owner and `ts`: rising, unless a bucket is there twice."""
        return (self.number << _TS_BITS) + self.ts

    def keys_of(self, owner_ids: Ints, ts: Ints) -> Ints:
        """Return such keys of any rows; -1 for those of other owners."""
        number = np.minimum(np.searchsorted(self.ids, owner_ids), max(0, len(self) - 1))
        known = self.ids[number] == owner_ids if len(self) else np.zeros(len(owner_ids), bool)
        return np.where(known, (number << _TS_BITS) + ts, -1)


class _Divided:
    """Observations of one series of all owners, by owner."""

    def __init__(self, owners: Owners, points: Points | None) -> None:
        """Take observations with the places of their buckets as `ts`."""
        self._owners, self._points = owners, points
        self._edges = owners.edges(points.ts) if points is not None else ()

    def of(self, number: int) -> Points | None:
        """Return the observations of an owner; None if it has none."""
        if self._points is None:
            return None
        own = slice(self._edges[number], self._edges[number + 1])
        points = self._points
        ts = self._owners.ts[points.ts[own]]
        return series.weighted(ts, points.values[own], points.weights[own], points.provenance)


class DeploymentsAlone:
    """Observations of each deployment, from a part of a window."""

    def __init__(self, rows: Columns) -> None:
        """Take rows of epochs with `measured.DEPLOYMENT_TIME` at least."""
        self._owners = Owners(rows, rows.ints("observed_ms") > 0)
        busy_ms = rows.ints("busy_ms")
        unknown = busy_ms == NULL
        if unknown.any():  # as `points.with_busy` of one epoch
            works = unknown & self._owners.any_row(~unknown) & (rows.ints("busy_provenance") > 0)
            self._owners.replace("busy_ms", np.where(works, rows.ints("observed_ms"), busy_ms))
        self._divided: dict[str, _Divided] = {}
        self._factors: dict[str, tuple[Mask, Floats]] = {}

    @cached_property
    def _observed_ms(self) -> Floats:
        buckets = self._owners.buckets(("observed_ms",))
        return self._owners.sums(buckets.ts, buckets.rows.floats("observed_ms"))

    @cached_property
    def _by_hour(self) -> Mask:
        return self._owners.largest("duration_ms") > series.MAX_MINUTE_MS

    @cached_property
    def _busy_provenance(self) -> Ints:
        return np.maximum(0, self._owners.largest("busy_provenance"))

    def observed_ms(self, epoch_id: int) -> float:
        """Return the observed time of an epoch; 0 without buckets."""
        number = self._owners.number_of(epoch_id)
        return 0.0 if number is None else float(self._observed_ms[number])

    def by_hour(self, epoch_id: int) -> bool:
        """Return whether some buckets of an epoch are of an hour, and not of a minute."""
        number = self._owners.number_of(epoch_id)
        return number is not None and bool(self._by_hour[number])

    def find(self, epoch_id: int, name: str, counts: Columns | None = None) -> Points | None:
        """Return the observations of a series in `OF_TIME` or `OF_DEPLOYMENTS`; None if it was not measured.

        With `counts`, the deltas of further counters of all epochs, of one in `COUNTED`.
        """
        if (number := self._owners.number_of(epoch_id)) is None:
            return None
        if name not in self._divided:
            self._divided[name] = _Divided(self._owners, self._find(name, counts))
        points = self._divided[name].of(number)
        if points is None:
            return None
        if name in _BY_BUSY_TIME:
            return replace(points, provenance=Provenance.of_stored(int(self._busy_provenance[number])))
        if name in self._factors:
            known, factors = self._factors[name]
            largest = 1.0 if _WHILE_BUSY[name][2] else math.inf
            return replace(points, factor=float(factors[number]), largest=largest) if known[number] else None
        return points

    def _find(self, name: str, counts: Columns | None) -> Points | None:
        if name in _WHILE_BUSY:
            return self._while_busy(name)
        if counts is not None:
            return self._of_counts(counts, COUNTED[name])
        series_definition = _OF_TIME.get(name) or _OF_DEPLOYMENTS[name]
        return series_definition.points(self._owners.buckets(series_definition.columns))

    def _while_busy(self, name: str) -> Points | None:
        """Find a gauge while deployments work, as `points.while_busy`."""
        stored, scale, mean = _WHILE_BUSY[name]
        buckets = self._owners.buckets((f"{stored}_sum", f"{stored}_n", "busy_ms", "observed_ms"))
        active = buckets.where((buckets.rows.ints("busy_ms") > 0) | (buckets.rows.floats(f"{stored}_sum") > 0))
        busy_ms = active.rows.floats("busy_ms")
        known = ~np.isnan(busy_ms)
        busy = self._owners.sums(active.ts[known], busy_ms[known])
        observed = self._owners.sums(active.ts, active.rows.floats("observed_ms"))
        factors = np.maximum(1.0, np.divide(observed, busy, out=np.ones(len(self._owners)), where=busy != 0))
        self._factors[name] = self._owners.sums(active.ts[known], np.ones(int(known.sum()))) > 0, factors
        return (series.mean_gauge if mean else series.gauge)(active, stored, scale)

    def _of_counts(self, counts: Columns, quotient: Quotient) -> Points | None:
        """Find a quotient of two counters, as `points.of_counts`."""
        keys = self._owners.keys()
        counted = self._owners.keys_of(counts.values[:, 0], counts.ints("ts"))
        places = np.minimum(np.searchsorted(keys, counted), max(0, len(keys) - 1))
        above, below = (
            np.sum([np.nan_to_num(counts.floats(name)) for name in names], axis=0)
            for names in (quotient.above, quotient.below or ())
        )
        some = (keys[places] == counted) & (below > 0) if len(keys) else np.zeros(len(counts), bool)
        quotients = above[some] / below[some] + quotient.plus
        return series.weighted(places[some], quotients, below[some], Provenance.COUNTER)


class DevicesAlone:
    """Observations of the gauges of each device, from a part of a window."""

    def __init__(self, rows: Columns) -> None:
        """Take rows with `measured.DEVICE`."""
        self._owners = Owners(rows, np.ones(len(rows), bool))
        self._divided: dict[str, _Divided] = {}

    def find(self, device_id: int, name: str) -> Points | None:
        """Return the observations of a series in `OF_DEVICES`; None if it was not measured."""
        if (number := self._owners.number_of(device_id)) is None:
            return None
        if name not in self._divided:
            self._divided[name] = _Divided(self._owners, self._find(_GAUGES[name]))
        return self._divided[name].of(number)

    def _find(self, metric: DeviceMetric) -> Points | None:
        buckets = self._owners.buckets((f"{metric.stored}_sum", f"{metric.stored}_n", "duration_ms"))
        means = series.gauge_means(buckets.rows, metric.stored) / metric.per_unit
        known = ~np.isnan(means)
        ms = buckets.rows.floats("duration_ms")
        return series.weighted(buckets.ts[known], means[known], ms[known], Provenance.REPORTED)
