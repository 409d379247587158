"""The buckets of a window as columns: by the minute, or by the hour where there are too many minutes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import pairwise

import numpy as np
from sqlalchemy import Connection

from pertoken.metrics import ENDED, ENGINE_COUNTERS, QUOTIENTS, RollUp, rolled
from pertoken.store.query import rollups
from pertoken.store.query.buckets import NULL, buckets, counted_metrics, counter_buckets
from pertoken.store.query.segments import Segment, Segments, segments
from pertoken.store.schema.rollup_tables import HOUR, MINUTE, THROTTLED
from pertoken.units import SHARE
from pertoken.window.columns import Columns, Floats, Ints, by_owner, columns, spans, starts
from pertoken.window.parts import COUNTED_PART, Parts
from pertoken.window.progress import Progress, no_progress, ticking
from pertoken.window.series import alone
from pertoken.window.series.alone import DeploymentsAlone, DevicesAlone, Owners
from pertoken.window.series.points import Points

MAX_BUCKETS = 1_000_000
"""Rows of devices and deployments that are read by the minute at most: some 300 MB, and seconds."""
_SPAN = ("ts", "duration_ms", "observed_ms")
DEVICE = (
    *("device_id", *_SPAN, "samples", "throttled_n", *THROTTLED, "energy_counter_mj", "energy_integral_mj"),
    *(f"{metric.stored}_{part}" for metric in rolled(RollUp.GAUGE) for part in ("sum", "n")),
)
DEVICE_TIME = ("device_id", *_SPAN)
HOST = ("host_id", *_SPAN, "memory_traffic_bytes", "memory_used_bytes_sum", "memory_used_bytes_n")
DEPLOYMENT = (
    *("epoch_id", *_SPAN, "busy_ms", "busy_provenance", "whole_ms"),
    *("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished", "preemptions"),
    *(f"{gauge}_{part}" for gauge in ("running_1e2", "waiting_1e2", "kv_use_1e4") for part in ("sum", "n")),
)
SHARES = ("device_id", "ts", "epoch_id", "held_ns")
DEPLOYMENT_TIME = ("epoch_id", *_SPAN, "busy_ms", "busy_provenance", "whole_ms", "generated_tokens")
COUNTERS = (*ENGINE_COUNTERS, *ENDED)
COLUMNS = {
    "device": DEVICE,
    "device_time": DEVICE_TIME,
    "host": HOST,
    "deployment": DEPLOYMENT,
    "deployment_time": DEPLOYMENT_TIME,
    "share": SHARES,
}
"""Columns of the parts of a window that are buckets of one roll-up."""
_ROLLUPS = {"device_time": "device", "deployment_time": "deployment"}
CHUNKS = 100
"""Chunks of rows that a large fleet's week may have: only a progress bar is drawn from it."""


class Measured:
    """Columns of what was measured, by owner and time. Each roll-up is read when it is first looked at."""

    def __init__(self, parts: Parts, own_devices: Mapping[int, Sequence[int]]) -> None:
        """Take the columns of `COLUMNS` and `counters` from `parts`; `own_devices` are those of each epoch."""
        self.parts = parts
        self.own_devices = own_devices

    @cached_property
    def devices(self) -> Mapping[int, Columns]:
        """Rows with `DEVICE`, by device."""
        return by_owner(self.parts["device"])

    @cached_property
    def device_times(self) -> Mapping[int, Columns]:
        """Rows with `DEVICE_TIME`, by device."""
        return self.devices if self._is_part(self._device_time_rows, "device") else by_owner(self._device_time_rows)

    @cached_property
    def _device_time_rows(self) -> Columns:
        rows: Columns = self.parts["device" if "device" in self.parts.names else "device_time"]
        return rows

    @cached_property
    def hosts(self) -> Mapping[int, Columns]:
        """Rows with `HOST`, by host."""
        return by_owner(self.parts["host"])

    @cached_property
    def deployments(self) -> Mapping[int, Columns]:
        """Rows with `DEPLOYMENT`, by epoch."""
        return by_owner(self.parts["deployment"])

    @cached_property
    def deployment_times(self) -> Mapping[int, Columns]:
        """Rows with `DEPLOYMENT_TIME`, by epoch."""
        rows = self._deployment_time_rows
        return self.deployments if self._is_part(rows, "deployment") else by_owner(rows)

    @cached_property
    def _deployment_time_rows(self) -> Columns:
        rows: Columns = self.parts["deployment" if "deployment" in self.parts.names else "deployment_time"]
        return rows

    def _is_part(self, rows: Columns, part: str) -> bool:
        """Return whether rows are those of a part: then what is made of that part is not made again."""
        return part in self.parts.names and rows is self.parts[part]

    def counts_any(self, names: Iterable[str]) -> bool:
        """Return whether some epoch counted one of these counters. Reads no counter for that."""
        return not self._counted.isdisjoint(names)

    @cached_property
    def _counted(self) -> frozenset[str]:
        if "counters" not in self.parts.names:
            return frozenset(self.parts[COUNTED_PART])
        counters: Columns = self.parts["counters"]
        return frozenset(counters.index) - counters.unknown

    @cached_property
    def counters(self) -> Mapping[int, Columns]:
        """Deltas of `COUNTERS` in the buckets in which one of them rose, by epoch."""
        return by_owner(self.parts["counters"])

    @cached_property
    def shares(self) -> Columns:
        """Shared time; what an epoch held whole is in its own rows."""
        shares: Columns = self.parts["share"]
        return shares

    @cached_property
    def times_alone(self) -> DeploymentsAlone:
        """Time and generated tokens of each deployment."""
        return DeploymentsAlone(self._deployment_time_rows)

    @cached_property
    def _deployments_alone(self) -> DeploymentsAlone:
        rows: Columns = self.parts["deployment"]
        return self.times_alone if self._is_part(self._deployment_time_rows, "deployment") else DeploymentsAlone(rows)

    @cached_property
    def _devices_alone(self) -> DevicesAlone:
        return DevicesAlone(self.parts["device"])

    def of_deployment_alone(self, epoch_id: int, name: str) -> Callable[[], Points | None] | None:
        """Return a function that finds a series of one epoch; None if it is not found for all epochs at once."""
        if name in QUOTIENTS or name == "asleep":
            counters = QUOTIENTS[name].counters if name in QUOTIENTS else ("asleep_ms",)
            if not self.counts_any(counters):
                return _no_points
            return partial(self._counted_alone, epoch_id, name) if name in alone.COUNTED else None
        if name in alone.OF_TIME:
            return partial(self.times_alone.find, epoch_id, name)
        return partial(self._deployments_alone.find, epoch_id, name) if name in alone.OF_DEPLOYMENTS else None

    def _counted_alone(self, epoch_id: int, name: str) -> Points | None:
        return self.times_alone.find(epoch_id, name, self.parts["counters"])

    def of_device_alone(self, device_id: int, name: str) -> Callable[[], Points | None] | None:
        """Return a function that finds a series of one device; None if it is not found for all devices at once."""
        return partial(self._devices_alone.find, device_id, name) if name in alone.OF_DEVICES else None

    def device(self, device_id: int) -> Columns:
        """Return the buckets of a device; none if it has none."""
        return self.devices.get(device_id, _empty(DEVICE))

    def device_time(self, device_id: int) -> Columns:
        """Return the buckets of a device with their `DEVICE_TIME` at least; none if it has none."""
        return self.device_times.get(device_id, _empty(DEVICE_TIME))

    def host(self, host_id: int) -> Columns:
        """Return the buckets of a host; none if it has none."""
        return self.hosts.get(host_id, _empty(HOST))

    def epoch(self, epoch_id: int) -> Columns:
        """Return the buckets of an epoch; none if it has none."""
        return self.deployments.get(epoch_id, _empty(DEPLOYMENT))

    def epoch_time(self, epoch_id: int) -> Columns:
        """Return the buckets of an epoch with their `DEPLOYMENT_TIME` at least; none if it has none."""
        return self.deployment_times.get(epoch_id, _empty(DEPLOYMENT_TIME))

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
        held_ns, whole = np.zeros(len(rows)), self._whole(epoch_id)
        if (shared := self._held_by.get(epoch_id, {}).get(device_id)) is not None:
            _add_at(held_ns, rows.ints("ts"), shared.ints("ts"), shared.floats("held_ns"))
        _add_at(held_ns, rows.ints("ts"), whole.ints("ts"), _whole_ns(whole))
        ms = rows.floats("duration_ms")
        return np.minimum(1.0, held_ns / 1e6 / np.where(ms > 0, ms, np.inf))

    def held_ns(self, device_id: int) -> Floats:
        """Return how long a device was held by any process in each of its buckets of `device_time`."""
        return self._held_ns.get(device_id, np.empty(0))

    @cached_property
    def _held_ns(self) -> Mapping[int, Floats]:
        """By device; found for all of them at once, as one alone takes a millisecond."""
        rows = self._device_time_rows
        owners = Owners(rows, np.ones(len(rows), bool))
        parts = [(owners.keys_of(self.shares.ints("device_id"), self.shares.ints("ts")), self.shares.floats("held_ns"))]
        for epoch_id, device_ids in self.own_devices.items():
            whole = self._whole(epoch_id)
            for device_id in device_ids if len(whole) else ():
                parts.append((owners.keys_of(np.full(len(whole), device_id), whole.ints("ts")), _whole_ns(whole)))
        held, keys = np.zeros(len(rows)), owners.keys()
        _add_at(held, keys, *map(np.concatenate, zip(*parts, strict=True)))
        return {device_id: held[span] for device_id, span in spans(rows.values[:, 0])}

    def _whole(self, epoch_id: int) -> Columns:
        """Return the buckets of an epoch in which it held devices whole."""
        rows = self.epoch_time(epoch_id)
        return rows.where(rows.ints("whole_ms") != NULL)


def _no_points() -> Points | None:
    return None


def _whole_ns(rows: Columns) -> Floats:
    return rows.floats("whole_ms") * SHARE


def _add_at(total: Floats, keys: Ints, some_keys: Ints, values: Floats) -> None:
    """Add values to a total where their keys are among the total's rising keys."""
    at = np.searchsorted(keys, some_keys)
    inside = at < len(keys)
    inside[inside] = keys[at[inside]] == some_keys[inside]
    np.add.at(total, at[inside], values[inside])


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
    if part == "counters":
        words = counted_metrics(connection, where, COUNTERS)
        chunks = counter_buckets(connection, where, words) if words else ()
        rows = ticking(chunks, CHUNKS, "reading counters", progress)
        return columns(("epoch_id", "ts", *words), rows, [counter for counter in COUNTERS if counter not in words])
    rollup, names = _ROLLUPS.get(part, part), COLUMNS[part]
    chunks = buckets(connection, rollup, where, names)
    return columns(names, ticking(chunks, CHUNKS, f"reading the buckets of each {rollup}", progress))
