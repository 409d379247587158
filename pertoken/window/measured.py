"""The buckets of a window as columns: by the minute, or by the hour where there are too many minutes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from pertoken.metrics import ENDED, ENGINE_COUNTERS, SERIES, STORED_GAUGES, RollUp, rolled
from pertoken.metrics.series import Counted, Derived, Histogram, Owner, Quotient, TimeShare, columns_of, counters_of
from pertoken.store.query import rollups
from pertoken.store.query.buckets import NULL, buckets, counted_metrics, counter_buckets
from pertoken.store.query.rollups import Segment, Segments, segments
from pertoken.store.schema.telemetry import HOUR, MINUTE, THROTTLED
from pertoken.units import SHARE
from pertoken.window.columns import Columns, Floats, Ints, by_owner, columns, slices, starts
from pertoken.window.figures import Progress, no_progress, ticking
from pertoken.window.series import KEY_S, GroupedRows, Needed, Observations, Points, observe

MAX_BUCKETS = 1_000_000
"""Rows of devices and deployments that are read by the minute at most: some 300 MB, and seconds."""
_INTERVAL = ("ts", "duration_ms", "observed_ms")
DEVICE = (
    *("device_id", *_INTERVAL, "samples", "throttled_n", *THROTTLED, "energy_counter_mj", "energy_integral_mj"),
    *(f"{metric.stored}_{part}" for metric in rolled(RollUp.GAUGE) for part in ("sum", "n")),
)
DEVICE_TIME = ("device_id", *_INTERVAL)
HOST = (
    *("host_id", *_INTERVAL, "memory_traffic_bytes", "plug_mj", "plug_ms"),
    *(f"{metric}_{part}" for metric in ("memory_used_bytes", "cpu_util_1e4") for part in ("sum", "n")),
)
DEPLOYMENT = (
    *("epoch_id", *_INTERVAL, "busy_ms", "busy_provenance", "whole_ms"),
    *("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished", "preemptions"),
    *(f"{gauge.column}_{part}" for gauge in STORED_GAUGES for part in ("sum", "n")),
)
SHARES = ("device_id", "ts", "epoch_id", "held_ns")
DEPLOYMENT_TIME = ("epoch_id", *_INTERVAL, "busy_ms", "busy_provenance", "whole_ms", "generated_tokens")
COUNTERS = (*ENGINE_COUNTERS, *ENDED)
COUNTERS_PART = "counters"
OF_TIME = ("held", "observed_h")
"""Derived series that are computed from times alone."""
HISTOGRAMS_PART = "histograms"
"""The part with the bucket counts of each histogram, by epoch and metric."""
COUNTED_PART = "counted"
"""The part with the names of counters that some epoch counted."""
PARTS = (COUNTERS_PART, "device", "host", "deployment", "share", HISTOGRAMS_PART)
TIME_PARTS = ("device_time", "deployment_time", "share", COUNTED_PART)
"""Parts without which there is no evidence: time, generated tokens, and which counters there are."""
Histograms = Mapping[tuple[int, str], Sequence[tuple[str, Ints]]]
"""(upper bounds as stored, observations by bucket) by epoch and metric."""
COLUMNS = {
    "device": DEVICE,
    "device_time": DEVICE_TIME,
    "host": HOST,
    "deployment": DEPLOYMENT,
    "deployment_time": DEPLOYMENT_TIME,
    "share": SHARES,
    COUNTERS_PART: ("epoch_id", "ts", *COUNTERS),
}
"""Columns of the parts of a window that are rows by owner and time."""
NEEDED = {
    **dict.fromkeys(("deployment", "deployment_time", "host"), Needed.RUNNING),
    **dict.fromkeys(("device", "device_time"), Needed.ALL),
    COUNTERS_PART: Needed.ANY,
}
"""Members that need a row in a bucket of a group, by part."""
MAX_GROUPS = 8
_ROLLUPS = {"device_time": "device", "deployment_time": "deployment"}
CHUNKS = 100
"""Chunks of rows that a large fleet's week may have: only a progress bar is drawn from it."""


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """Time in which owners were observed together."""

    observed_ms: float = 0.0
    by_hour: bool = False
    """Whether some buckets are of an hour, and not of a minute."""


def _time_of(rows: GroupedRows, group: int) -> MeasuredTime:
    return MeasuredTime(float(rows.observed_ms[group]), bool(rows.by_hour[group]))


class _SingleOwners(NamedTuple):
    rows: GroupedRows
    owners: Sequence[tuple[int]]
    number_of: Mapping[int, int]


class MeasuredColumns:
    """Columns of measurements, by owner and time."""

    def __init__(
        self,
        parts: Mapping[str, Columns],
        own_devices: Mapping[int, Sequence[int]],
        histograms: Histograms | None = None,
        counted: Collection[str] = (),
    ) -> None:
        """Take the columns of `COLUMNS` from `parts`; `own_devices` are those of each epoch.

        `counted`: names of the counters that some epoch counted, where `parts` have no counters.
        """
        self.parts, self.own_devices, self.histograms = parts, own_devices, histograms or {}
        self._counted_names = counted
        self._by_owner: dict[str, Mapping[int, Columns]] = {}
        self._single_owners: dict[str, _SingleOwners] = {}
        self._counters: dict[str, GroupedRows] = {}
        self._groups: dict[tuple[str, tuple[int, ...]], GroupedRows] = {}
        """Of the owners that were requested last: rules read several series of them."""
        self._observations: dict[tuple[str, str], Observations] = {}
        """Of all single owners, by series and part."""

    def points(self, name: str, ids: tuple[int, ...]) -> Points | None:
        """Return the observations of a series of one owner, or of several as one group; None if it was not measured.

        Owners are those of `SERIES`: epochs of deployments, devices or hosts. A series of one owner is computed for all
        single owners at once: most rules look at each of them.
        """
        computation, part = SERIES[name].computation, self._part_of(name)
        is_counted = isinstance(computation, Counted)
        if isinstance(computation, Counted) and self._counted.isdisjoint(counters_of(computation)):
            return None
        if len(ids) != 1:
            counted = self._group(COUNTERS_PART, ids) if is_counted else None
            return observe(computation, self._group(part, ids), counted).points(0)
        single = self._single(part)
        if (number := single.number_of.get(ids[0])) is None:
            return None
        if (name, part) not in self._observations:
            counted = self._counters_of(part, single.owners) if is_counted else None
            self._observations[name, part] = observe(computation, single.rows, counted)
        return self._observations[name, part].points(number)

    def time(self, owner: Owner, ids: tuple[int, ...]) -> MeasuredTime:
        """Return the time in which owners were observed together."""
        part = self._time_part(owner)
        if len(ids) != 1:
            return _time_of(self._group(part, ids), 0)
        single = self._single(part)
        return _time_of(single.rows, single.number_of[ids[0]]) if ids[0] in single.number_of else MeasuredTime()

    def _group(self, part: str, ids: tuple[int, ...]) -> GroupedRows:
        if (part, ids) not in self._groups:
            if len(self._groups) == MAX_GROUPS:
                self._groups.clear()
            owners = self._owners(part)
            members = [owners[owner] for owner in ids if owner in owners] or [_empty(COLUMNS[part])]
            values = np.concatenate([member.values for member in members])
            self._groups[part, ids] = GroupedRows(Columns(members[0].index, values), [ids], NEEDED[part])
        return self._groups[part, ids]

    def _single(self, part: str) -> _SingleOwners:
        if part not in self._single_owners:
            rows = self.parts[part]
            owners = [(owner,) for owner, _ in slices(rows.values[:, 0])]
            number_of = {owner: number for number, (owner,) in enumerate(owners)}
            self._single_owners[part] = _SingleOwners(GroupedRows(rows, owners, NEEDED[part]), owners, number_of)
        return self._single_owners[part]

    def _counters_of(self, part: str, owners: Sequence[tuple[int]]) -> GroupedRows:
        """Return the counters of all single owners in a part, by the numbers that they have there."""
        if part not in self._counters:
            self._counters[part] = GroupedRows(self.parts[COUNTERS_PART], owners, NEEDED[COUNTERS_PART])
        return self._counters[part]

    def _part_of(self, name: str) -> str:
        """Return the part with the columns of a series: the smallest one."""
        spec = SERIES[name]
        is_of_time = spec.owner == "deployment" and {*columns_of(spec.computation)} <= {*DEPLOYMENT_TIME}
        return self._time_part(spec.owner) if is_of_time else spec.owner

    def _time_part(self, owner: Owner) -> str:
        """Return the part with the time of devices or deployments: all of their columns where these were read."""
        return owner if owner in self.parts else f"{owner}_time"

    def _owners(self, part: str) -> Mapping[int, Columns]:
        if part not in self._by_owner:
            self._by_owner[part] = by_owner(self.parts[part])
        return self._by_owner[part]

    @cached_property
    def _counted(self) -> frozenset[str]:
        """Names of the counters that some epoch counted."""
        if COUNTERS_PART not in self.parts:
            return frozenset(self._counted_names)
        counters = self.parts[COUNTERS_PART]
        return frozenset(counters.index) - counters.unknown

    @property
    def shares(self) -> Columns:
        """Shared time; the rows of an epoch hold its whole devices."""
        return self.parts["share"]

    def device(self, device_id: int) -> Columns:
        """Return the buckets of a device; none if it has none."""
        return self._owners("device").get(device_id, _empty(DEVICE))

    def device_time(self, device_id: int) -> Columns:
        """Return the buckets of a device with their `DEVICE_TIME` at least; none if it has none."""
        return self._owners(self._time_part("device")).get(device_id, _empty(DEVICE_TIME))

    def host(self, host_id: int) -> Columns:
        """Return the buckets of a host; none if it has none."""
        return self._owners("host").get(host_id, _empty(HOST))

    def epoch(self, epoch_id: int) -> Columns:
        """Return the buckets of an epoch; none if it has none."""
        return self._owners("deployment").get(epoch_id, _empty(DEPLOYMENT))

    @cached_property
    def _held_by(self) -> Mapping[int, Mapping[int, Columns]]:
        """By epoch and device: shared time held in each bucket."""
        order = np.argsort(self.shares.ints("epoch_id"), kind="stable")
        rows = self.shares.where(order)
        begins = [*starts(rows.ints("epoch_id")).tolist(), len(rows)]
        return {
            int(rows.ints("epoch_id")[first]): by_owner(rows.where(slice(first, last)))
            for first, last in pairwise(begins)
        }

    def share(self, epoch_id: int, device_id: int, rows: Columns) -> Floats:
        """Return which share of its time an epoch held a device in each of the device's rows."""
        held_ns, whole_rows = np.zeros(len(rows)), self._whole(epoch_id)
        if (shared := self._held_by.get(epoch_id, {}).get(device_id)) is not None:
            _add_at(held_ns, rows.ints("ts"), shared.ints("ts"), shared.floats("held_ns"))
        _add_at(held_ns, rows.ints("ts"), whole_rows.ints("ts"), _whole_ns(whole_rows))
        ms = rows.floats("duration_ms")
        return np.minimum(1.0, held_ns / 1e6 / np.where(ms > 0, ms, np.inf))

    def held_ns(self, device_id: int) -> Floats:
        """Return how long a device was held by any process in each of its buckets of `device_time`."""
        return self._held_ns.get(device_id, np.empty(0))

    @cached_property
    def _held_ns(self) -> Mapping[int, Floats]:
        """By device; found for all of them at once, as one alone takes a millisecond."""
        rows = self.parts[self._time_part("device")]
        device_ids, number = np.unique(rows.values[:, 0], return_inverse=True)

        def keys_of(owner_ids: Ints, ts: Ints) -> Ints:
            position = np.searchsorted(device_ids, owner_ids)
            return np.where(np.isin(owner_ids, device_ids), position * KEY_S + ts, -1)

        parts = [(keys_of(self.shares.ints("device_id"), self.shares.ints("ts")), self.shares.floats("held_ns"))]
        for epoch_id, own_device_ids in self.own_devices.items():
            rows_of_epoch = self._whole(epoch_id)
            for device_id in own_device_ids if len(rows_of_epoch) else ():
                keys = keys_of(np.full(len(rows_of_epoch), device_id), rows_of_epoch.ints("ts"))
                parts.append((keys, _whole_ns(rows_of_epoch)))
        held = np.zeros(len(rows))
        _add_at(held, number * KEY_S + rows.ints("ts"), *map(np.concatenate, zip(*parts, strict=True)))
        return {device_id: held[device_slice] for device_id, device_slice in slices(rows.values[:, 0])}

    def _whole(self, epoch_id: int) -> Columns:
        """Return the buckets of an epoch in which it held devices whole."""
        rows = self._owners(self._time_part("deployment")).get(epoch_id, _empty(DEPLOYMENT_TIME))
        return rows.where(rows.ints("whole_ms") != NULL)


def _whole_ns(rows: Columns) -> Floats:
    return rows.floats("whole_ms") * SHARE


def _add_at(total: Floats, keys: Ints, value_keys: Ints, values: Floats) -> None:
    """Add values to a total where their keys are among the total's rising keys."""
    position = np.searchsorted(keys, value_keys)
    inside = position < len(keys)
    inside[inside] = keys[position[inside]] == value_keys[inside]
    np.add.at(total, position[inside], values[inside])


def parts_of(series: Iterable[str], counted: Callable[[], Collection[str]]) -> tuple[str, ...]:
    """Return the parts that these series are computed from. `counted` returns the counters that some epoch counted."""
    needed = {part for name in series for part in _parts_of(name, counted)}
    return *(part for part in TIME_PARTS if part.removesuffix("_time") not in needed), *sorted(needed)


def _parts_of(name: str, counted: Callable[[], Collection[str]]) -> Iterator[str]:
    spec = SERIES[name]
    match spec.computation:
        case Histogram():
            yield HISTOGRAMS_PART
        case Derived():
            yield from () if name in OF_TIME else ("device", "host", "deployment")
        case Quotient() | TimeShare() as computation:
            yield from (COUNTERS_PART,) if not set(counters_of(computation)).isdisjoint(counted()) else ()
        case computation if spec.owner != "deployment" or not {*columns_of(computation)} <= {*DEPLOYMENT_TIME}:
            yield spec.owner


@cache
def _empty(names: Sequence[str]) -> Columns:
    return columns(names, ())


def resolution(connection: Connection, start: int, now_ts: int, owners: int) -> Segments:
    """Return the buckets to read: minutes where they are kept and not too many, hours elsewhere."""
    minutes = Segment(MINUTE, start // MINUTE * MINUTE, -(-now_ts // MINUTE) * MINUTE)
    if owners * (minutes.end - minutes.start) // MINUTE > MAX_BUCKETS:
        return segments(start, now_ts)
    oldest = rollups.oldest_minute(connection, minutes.start, minutes.end)
    if oldest is None:
        return segments(start, now_ts)
    if oldest < minutes.start + HOUR:
        return (minutes,)
    # Older minutes were deleted, all of an hour together: whole hours stand for them.
    first = oldest // HOUR * HOUR
    return *segments(start, first), Segment(MINUTE, first, minutes.end)


def read_part(connection: Connection, where: Segments, part: str, progress: Progress = no_progress) -> Columns:
    """Read the buckets of one part of a window: one of `COLUMNS`, or `counters`."""
    if part == COUNTERS_PART:
        words = counted_metrics(connection, where, COUNTERS)
        chunks = counter_buckets(connection, where, words) if words else ()
        rows = ticking(chunks, CHUNKS, "reading counters", progress)
        return columns(("epoch_id", "ts", *words), rows, [counter for counter in COUNTERS if counter not in words])
    rollup, names = _ROLLUPS.get(part, part), COLUMNS[part]
    chunks = buckets(connection, rollup, where, names)
    read = columns(names, ticking(chunks, CHUNKS, f"reading the buckets of each {rollup}", progress))
    return with_busy_bounds(read) if rollup == "deployment" else read


def with_busy_bounds(rows: Columns) -> Columns:
    """Fill in all of the observed time as busy time where an epoch works and its time is unknown.

    That is an upper bound. Where no busy time of an epoch is known, it stays unknown in all buckets.
    """
    busy_ms = rows.ints("busy_ms")
    unknown = busy_ms == NULL
    if unknown.any():
        firsts = starts(rows.values[:, 0])
        is_timed = np.repeat(np.logical_or.reduceat(~unknown, firsts), np.diff(firsts, append=len(rows)))
        works = unknown & is_timed & (rows.ints("busy_provenance") > 0)
        busy_ms[works] = rows.ints("observed_ms")[works]
    return rows
