"""Series of one host or deployment over a window, with what changed in it."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection

from pertoken.state.service import Slo
from pertoken.store.query import read, rollups, slices
from pertoken.store.query.fast_rows import Rows
from pertoken.store.query.segments import Segment
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.window.figures import ratio
from pertoken.window.inventory import Inventory
from pertoken.window.reading import Window
from pertoken.window.series.histograms import quantile

SLICES_S = (60, 120, 300, 900, 3600)
MAX_SLICES = 100
"""Points of a plot: about two for each cell of a wide one."""
LATENCIES = {"ttft": "ttft_s", "tpot": "tpot_s"}
QUANTILES = {"p50": 0.5, "p95": 0.95}
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
    """By name: `generated_tok_s`, `prompt_tok_s`, `power_w`, `util`, `sm_active`, `dram_active`, `tensor_active`,
    `kv_use`, `running`, `waiting`, and in seconds `ttft_p50`, `ttft_p95`, `tpot_p50`, `tpot_p95`."""
    power_limit_w: float | None = None
    """Sum of the limits of its devices; None unless all are known."""
    power_cap_w: float | None = None
    """Sum of the caps that the newest epochs set; None where none is set."""
    energy_kwh: float | None = None
    """Measured energy of its devices over the window."""
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
    epochs = _epochs(inventory, deployments)
    devices = _devices(inventory, subject, [row.epoch_id for row in epochs])
    slice_s, segment = _resolution(connection, start, end, dated=dated)
    first = segment.start // slice_s * slice_s
    n = max(0, -(-(segment.end - first) // slice_s))
    place = _Slices(first, slice_s, n)
    epoch_ids = [row.epoch_id for row in epochs]
    device_rows = slices.device_slices(connection, segment, slice_s, list(devices))
    served_rows = slices.deployment_slices(connection, segment, slice_s, epoch_ids)
    counts = slices.histogram_slices(connection, segment, slice_s, epoch_ids, tuple(LATENCIES.values()))
    owner = {row.epoch_id: row.deployment_id for row in epochs}
    limits = [row.power_limit_mw for row in devices.values() if row.kind != "cpu" and row.parent_id is None]
    return Course(
        start_ts=first,
        slice_s=slice_s,
        series={**_device_series(device_rows, place), **_served_series(served_rows, owner, place)}
        | dict(_latencies(counts, place)),
        power_limit_w=sum(limits) / 1000 if limits and None not in limits else None,
        power_cap_w=_cap_w(inventory, deployments),
        energy_kwh=_energy_kwh(device_rows),
        prompt_tokens=_total(served_rows, "prompt_tokens"),
        cached_tokens=_total(served_rows, "cached_tokens"),
        generated_tokens=_total(served_rows, "generated_tokens"),
        models=tuple(sorted({inventory.newest[deployment].served_model for deployment in deployments})),
        deployment_ids=tuple(deployments),
        marks=_marks(connection, inventory, subject, deployments, start, end if dated else None),
    )


def _total(rows: Rows, name: str) -> int:
    return sum(getattr(row, name) or 0 for row in rows)


def _deployments(inventory: Inventory, subject: Subject) -> list[int]:
    if subject.kind == "deployment":
        return [subject.id] if subject.id in inventory.newest else []
    return [deployment_id for deployment_id, row in inventory.newest.items() if row.host_id == subject.id]


def _epochs(inventory: Inventory, deployments: Iterable[int]) -> list[Any]:
    return [row for deployment in deployments for row in inventory.epochs_of.get(deployment, ())]


def _devices(inventory: Inventory, subject: Subject, epoch_ids: Iterable[int]) -> dict[int, Any]:
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


class _Slices(NamedTuple):
    """Mapping from instants to the slices of a series."""

    first: int
    slice_s: int
    n: int

    def at(self, ts: int) -> int | None:
        i = (ts - self.first) // self.slice_s
        return i if 0 <= i < self.n else None

    def filled(self, values: Mapping[int, float]) -> Values:
        return tuple(values.get(i) for i in range(self.n))


def _device_series(rows: Rows, place: _Slices) -> dict[str, Values]:
    """Return the sum of the watts of devices, and the mean of their activity, of those that were read."""
    values_of: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        i = place.at(row.slice_ts)
        for name in slices.DEVICE if i is not None else ():
            value = ratio(getattr(row, f"{name}_sum"), getattr(row, f"{name}_n"), 1e3 if name == "power_mw" else 1e4)
            if value is not None and i is not None:
                values_of[name][i].append(value)
    named = {"power_w": "power_mw"} | {name.removesuffix("_1e4"): name for name in slices.DEVICE if "_1e4" in name}
    return {
        name: place.filled(
            {i: (sum if name == "power_w" else _mean)(device_values) for i, device_values in values_of[stored].items()}
        )
        for name, stored in named.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _served_series(rows: Rows, owner: Mapping[int, int], place: _Slices) -> dict[str, Values]:
    """Return sums over deployments: one that changed within a slice counts by the time of all its epochs."""
    by: dict[int, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if (i := place.at(row.slice_ts)) is not None:
            by[i][owner[row.epoch_id]].append(row)
    served: dict[str, dict[int, float]] = defaultdict(dict)
    for i, deployments in by.items():
        for name in ("generated", "prompt"):
            rates = [_rate(epochs, f"{name}_tokens") for epochs in deployments.values()]
            _put(served[f"{name}_tok_s"], i, rates, sum)
        for name, stored, scale in (("running", "running_1e2", 1e2), ("waiting", "waiting_1e2", 1e2)):
            _put(served[name], i, [_gauge(epochs, stored, scale) for epochs in deployments.values()], sum)
        _put(served["kv_use"], i, [_gauge(epochs, "kv_use_1e4", 1e4) for epochs in deployments.values()], _mean)
    names = ("generated_tok_s", "prompt_tok_s", "running", "waiting", "kv_use")
    return {name: place.filled(served[name]) for name in names}


def _put(
    into: dict[int, float], i: int, values: Sequence[float | None], combine: Callable[[Sequence[float]], float]
) -> None:
    known = [value for value in values if value is not None]
    if known:
        into[i] = combine(known)


def _rate(epochs: Sequence[Any], name: str) -> float | None:
    counted = [row for row in epochs if getattr(row, name) is not None]
    return ratio(sum(getattr(row, name) for row in counted), sum(row.duration_ms for row in counted), 1e-3)


def _gauge(epochs: Sequence[Any], name: str, scale: float) -> float | None:
    total, n = ([getattr(row, f"{name}_{part}") or 0 for row in epochs] for part in ("sum", "n"))
    known = any(getattr(row, f"{name}_sum") is not None for row in epochs)
    return ratio(sum(total), sum(n), scale) if known else None


def _latencies(rows: Rows, place: _Slices) -> Iterator[tuple[str, Values]]:
    histograms: dict[tuple[str, int], dict[tuple[float, ...], list[int]]] = defaultdict(dict)
    for slice_ts, metric, text, bucket, total in rows:
        if (i := place.at(slice_ts)) is not None:
            bounds = tuple(map(float, filter(None, text.split(","))))
            histograms[metric, i].setdefault(bounds, [0] * (len(bounds) + 1))[bucket] += total
    for name, metric in LATENCIES.items():
        for label, q in QUANTILES.items():
            points = ((i, quantile(histogram, q)) for (of, i), histogram in histograms.items() if of == metric)
            yield f"{name}_{label}", place.filled({i: value for i, value in points if value is not None})


def _cap_w(inventory: Inventory, deployments: Iterable[int]) -> float | None:
    caps = []
    for deployment in deployments:
        epoch = inventory.newest[deployment]
        cap = json.loads(epoch.knobs).get("power_cap_w")
        if isinstance(cap, int | float):
            caps.append(float(cap) * len(inventory.epoch_devices.get(epoch.epoch_id, ())))
    return sum(caps) if caps else None


def _energy_kwh(rows: Rows) -> float | None:
    """Return the energy by the driver's counter of each device and slice, else by its integrated power."""
    known = [row.energy_integral_mj if row.energy_counter_mj is None else row.energy_counter_mj for row in rows]
    measured = [limit for limit in known if limit is not None]
    return sum(measured) / 1000 / JOULES_PER_KWH if measured else None


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


def changes(epochs: Sequence[Any]) -> Iterator[Mark]:
    """Yield the start of each epoch, with the knobs that changed."""
    for previous, epoch in zip((None, *epochs), epochs, strict=False):
        if previous is None:
            yield Mark(epoch.start_ts, "epoch", f"{epoch.served_model}: first seen")
            continue
        before, after = json.loads(previous.knobs), json.loads(epoch.knobs)
        changed = [
            f"{name} {before.get(name, 'not set')} → {after.get(name, 'not set')}"
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
        if previous.engine_version != epoch.engine_version:
            changed.append(f"version {previous.engine_version or '?'} → {epoch.engine_version or '?'}")
        yield Mark(epoch.start_ts, "epoch", f"{epoch.served_model}: {', '.join(changed) or 'devices changed'}")
