"""Course of one host or deployment over a window, slice by slice, with its events."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from sqlalchemy import Connection

from pertoken.metrics import DEVICE, SERIES
from pertoken.metrics.series import columns_of
from pertoken.state.service import Slo
from pertoken.store.query import read, rollups
from pertoken.store.query.buckets import buckets
from pertoken.store.query.rollups import HistogramSlice, Segment, histogram_slices
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.window.columns import Columns, by_owner, columns, rows_in_turn, stacked
from pertoken.window.energy import device_energy_mj
from pertoken.window.inventory import Inventory, KnownDevice, KnownEpoch
from pertoken.window.measured import with_busy_bounds
from pertoken.window.reading import Window
from pertoken.window.series import Counts, GroupedRows, Needed, histogram, observe, quantile

SLICES_S = (60, 120, 300, 900, 3600)
MAX_SLICES = 100
"""Points of a plot: about two for each cell of a wide one."""
LATENCIES = {"ttft": "ttft_s", "tpot": "tpot_s"}
QUANTILES = {"p50": 0.5, "p95": 0.95}
PLOTTED_OF_DEVICES = ("power_w", *(metric.series for metric in DEVICE if metric.series and metric.heading))
PLOTTED_OF_DEPLOYMENTS = ("generated_tok_s", "prompt_tok_s", "running", "waiting", "kv_use")
TOKENS = ("generated_tokens", "prompt_tokens", "cached_tokens")
ENERGY = ("energy_counter_mj", "energy_integral_mj")
OWNERS = {"device": "device", "deployment": "epoch"}
"""Roll-ups -> owners of the rows."""
JOULES_PER_KWH = 3_600_000
Values = tuple[float | None, ...]


class Subject(NamedTuple):
    """The host or deployment that a page is about."""

    kind: Literal["host", "deployment"]
    id: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A change at an instant."""

    ts: int
    kind: Literal["epoch", "verdict", "event"]
    text: str


@dataclass(frozen=True, slots=True)
class Course:
    """Values of each slice of a window, None where nothing was observed."""

    start_ts: int
    slice_s: int
    series: Mapping[str, Values]
    """By name: `PLOTTED_OF_DEVICES` and `PLOTTED_OF_DEPLOYMENTS`, as rules read them, and in seconds
    `ttft_p50`, `ttft_p95`, `tpot_p50`, `tpot_p95`."""
    power_limit_w: float | None = None
    """Sum of the limits of its devices; None unless all are known."""
    power_cap_w: float | None = None
    """Sum of the caps that the newest epochs set; None where none is set."""
    energy_kwh: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    models: tuple[str, ...] = ()
    deployment_ids: tuple[int, ...] = ()
    slo: Slo | None = None
    """Objectives of its one model; None where there are several, or none is set."""
    marks: tuple[Mark, ...] = field(default=())
    """Oldest first."""

    @property
    def end_ts(self) -> int:
        """End of the last slice."""
        return self.start_ts + self.slice_s * len(next(iter(self.series.values()), ()))


def read_course(connection: Connection, subject: Subject, start: int, end: int, *, dated: bool = False) -> Course:
    """Read the course of a host or deployment over [start, end).

    `dated`: `end`, a whole minute, is in the past, and nothing later counts.
    """
    inventory = Window(connection, start, end, dated=dated).inventory
    deployments = _deployments(inventory, subject)
    epoch_ids = [row.epoch_id for deployment in deployments for row in inventory.epochs_of.get(deployment, ())]
    devices = _devices(inventory, subject, epoch_ids)
    slice_s, segment = _resolution(connection, start, end, dated=dated)
    first = segment.start // slice_s * slice_s
    slices = _Slices(first, slice_s, max(0, -(-(segment.end - first) // slice_s)))
    device_rows = _read(connection, "device", segment, PLOTTED_OF_DEVICES, ENERGY, list(devices))
    served_rows = _read(connection, "deployment", segment, PLOTTED_OF_DEPLOYMENTS, TOKENS, epoch_ids)
    counts = histogram_slices(connection, segment, slice_s, epoch_ids, tuple(LATENCIES.values()))
    limits = [row.power_limit_mw for row in devices.values() if row.kind != "cpu" and row.parent_id is None]
    known_limits = [limit_mw for limit_mw in limits if limit_mw is not None]
    served = [
        rows_in_turn([served_rows[row.epoch_id] for row in rows if row.epoch_id in served_rows])
        for rows in (inventory.epochs_of.get(deployment, ()) for deployment in deployments)
        if any(row.epoch_id in served_rows for row in rows)
    ]
    return Course(
        start_ts=first,
        slice_s=slice_s,
        series={
            **{name: _sliced(name, list(device_rows.values()), slices) for name in PLOTTED_OF_DEVICES},
            **{name: _sliced(name, served, slices) for name in PLOTTED_OF_DEPLOYMENTS},
            **dict(_latencies(counts, slices)),
        },
        power_limit_w=sum(known_limits) / 1000 if limits and len(known_limits) == len(limits) else None,
        power_cap_w=_cap_w(inventory, deployments),
        energy_kwh=_energy_kwh(device_rows.values()),
        prompt_tokens=_total(served_rows.values(), "prompt_tokens"),
        cached_tokens=_total(served_rows.values(), "cached_tokens"),
        generated_tokens=_total(served_rows.values(), "generated_tokens"),
        models=tuple(sorted({inventory.newest[deployment].served_model for deployment in deployments})),
        deployment_ids=tuple(deployments),
        marks=_marks(connection, inventory, subject, deployments, start, end if dated else None),
    )


def _total(epochs: Iterable[Columns], name: str) -> int:
    return sum(int(np.nansum(rows.floats(name))) for rows in epochs)


def _deployments(inventory: Inventory, subject: Subject) -> list[int]:
    if subject.kind == "deployment":
        return [subject.id] if subject.id in inventory.newest else []
    return [deployment_id for deployment_id, row in inventory.newest.items() if row.host_id == subject.id]


def _devices(inventory: Inventory, subject: Subject, epoch_ids: Iterable[int]) -> dict[int, KnownDevice]:
    """Return the rows of the devices; a partition draws no power of its own, so its GPU stands for it."""
    if subject.kind == "host":
        return {device_id: row for device_id, row in inventory.devices.items() if row.host_id == subject.id}
    ids = {device for epoch_id in epoch_ids for device in inventory.epoch_devices.get(epoch_id, ())}
    return {device_id: row for device_id, row in inventory.devices.items() if device_id in ids}


def _resolution(connection: Connection, start: int, end: int, *, dated: bool) -> tuple[int, Segment]:
    """Return the length of a slice, and the roll-ups to read: hours where the minutes are many or were deleted."""
    slice_s = next((slices_ for slices_ in SLICES_S if end - start <= slices_ * MAX_SLICES), HOUR)
    first_hour = start // HOUR * HOUR
    if slice_s < HOUR and not rollups.without_minutes(connection, range(first_hour, end, HOUR)):
        return slice_s, Segment(MINUTE, start // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE)
    # An hour that goes on after a past `end` would hold what came later.
    return HOUR, Segment(HOUR, first_hour, end // HOUR * HOUR if dated else -(-end // HOUR) * HOUR)


@dataclass(frozen=True, slots=True)
class _Slices:
    first_ts: int
    slice_s: int
    count: int

    def number(self, ts: int) -> int | None:
        """Return the number of the slice that an instant lies in."""
        number = (ts - self.first_ts) // self.slice_s
        return number if 0 <= number < self.count else None


def _read(
    connection: Connection,
    rollup: Literal["device", "deployment"],
    segment: Segment,
    plotted: Sequence[str],
    summed: Sequence[str],
    owners: Sequence[int],
) -> Mapping[int, Columns]:
    """Return the buckets of a few owners, with the columns of the series that are plotted and those that are summed."""
    needed = dict.fromkeys(column for name in plotted for column in columns_of(SERIES[name].computation))
    time = ("ts", "duration_ms", "observed_ms", *(("busy_ms", "busy_provenance") if rollup == "deployment" else ()))
    names = tuple(dict.fromkeys((f"{OWNERS[rollup]}_id", *time, *summed, *needed)))
    rows = columns(names, buckets(connection, rollup, (segment,), names, owners))
    return by_owner(with_busy_bounds(rows) if rollup == "deployment" else rows)


def _sliced(name: str, members: Sequence[Columns], slices: _Slices) -> Values:
    """Return a series of all members that report it, by slice; a member counts from its first to its last value."""
    computation = SERIES[name].computation
    reported = [rows.where(~np.isnan(rows.floats(columns_of(computation)[0]))) for rows in members]
    reporting = [rows for rows in reported if len(rows)]
    points = None
    if reporting:
        grouped = GroupedRows(stacked(reporting), [range(len(reporting))], Needed.RUNNING)
        points = observe(computation, grouped).points(0)
    return (None,) * slices.count if points is None else points.slices(slices.first_ts, slices.slice_s, slices.count)


def _latencies(rows: Iterable[HistogramSlice], slices: _Slices) -> Iterator[tuple[str, Values]]:
    parts: dict[tuple[str, int], list[tuple[str, Counts]]] = defaultdict(list)
    for slice_ts, metric, upper_bounds, bucket, total in rows:
        if (number := slices.number(slice_ts)) is not None:
            parts[metric, number].append((upper_bounds, [(bucket, total)]))
    for name, metric in LATENCIES.items():
        histograms = [histogram(parts.get((metric, number), ())) for number in range(slices.count)]
        for label, q in QUANTILES.items():
            yield f"{name}_{label}", tuple(quantile(counts, q) for counts in histograms)


def _cap_w(inventory: Inventory, deployments: Iterable[int]) -> float | None:
    caps = []
    for deployment in deployments:
        epoch = inventory.newest[deployment]
        cap = json.loads(epoch.knobs).get("power_cap_w")
        if isinstance(cap, int | float):
            caps.append(float(cap) * len(inventory.epoch_devices.get(epoch.epoch_id, ())))
    return sum(caps) if caps else None


def _energy_kwh(devices: Iterable[Columns]) -> float | None:
    """Return the energy by the driver's counter of each device and bucket, else by its integrated power."""
    measured = [device_energy_mj(rows) for rows in devices]
    if all(np.isnan(energy_mj).all() for energy_mj in measured):
        return None
    return float(sum(np.nansum(energy_mj) for energy_mj in measured)) / 1000 / JOULES_PER_KWH


def _marks(
    connection: Connection,
    inventory: Inventory,
    subject: Subject,
    deployments: Sequence[int],
    start: int,
    as_of: int | None,
) -> tuple[Mark, ...]:
    marks = [
        mark
        for deployment in deployments
        for mark in changes(inventory.epochs_of.get(deployment, ()))
        if mark.ts >= start
    ]
    hosts = {inventory.newest[deployment].host_id for deployment in deployments} | (
        {subject.id} if subject.kind == "host" else set()
    )
    events = (row for row in read.events(connection, start, as_of) if row.host_id in hosts)
    marks += [Mark(row.ts, "event", row.message) for row in events if row.ts >= start]
    return tuple(sorted(marks, key=lambda mark: mark.ts))


def changes(epochs: Sequence[KnownEpoch]) -> Iterator[Mark]:
    """Yield the start of each epoch, with the knobs that changed."""
    for previous, epoch in zip((None, *epochs), epochs, strict=False):
        if previous is None:
            yield Mark(epoch.start_ts, "epoch", f"{epoch.served_model}: first seen")
            continue
        old_knobs, new_knobs = json.loads(previous.knobs), json.loads(epoch.knobs)
        changed = [
            f"{name} {old_knobs.get(name, 'not set')} → {new_knobs.get(name, 'not set')}"
            for name in sorted({*old_knobs, *new_knobs})
            if old_knobs.get(name) != new_knobs.get(name)
        ]
        if previous.engine_version != epoch.engine_version:
            changed.append(f"version {previous.engine_version or '?'} → {epoch.engine_version or '?'}")
        yield Mark(epoch.start_ts, "epoch", f"{epoch.served_model}: {', '.join(changed) or 'devices changed'}")
