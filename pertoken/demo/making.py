"""A demo written to a database: history as an agent's roll-ups, the newest minutes as ticks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from sqlalchemy import Table

from pertoken.catalog.market import Market, load_market
from pertoken.costs.prices.stored import Ownership
from pertoken.demo import simulator
from pertoken.demo.fleet import DrawnFleet, draw_fleet, usd_per_hour
from pertoken.demo.rows import (
    BucketSteps,
    Columns,
    EngineRows,
    HostColumns,
    HostRows,
    counter_columns,
    deployment_columns,
    device_columns,
    engine_rows,
    histograms,
    host_columns,
    host_rows,
)
from pertoken.demo.simulator import DeviceReadings, EngineCourse, Floats, Ints, course, engine, idling, working
from pertoken.migrations import upgrade
from pertoken.state.deployment import Deployment
from pertoken.store import repository
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.integrity.checksums import CHECKSUMMED
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pertoken.store.schema.shared import Values

HOUR_S, DAY_S = 3600, 86_400
DEMAND_SD = 0.06
"""Standard deviation of the logarithm of an hour's requests around their shape."""
LENGTHS_SD = 0.03
"""Standard deviation of the logarithm of an hour's mean lengths and cached share."""


@dataclass(frozen=True, slots=True)
class SimulatedEpoch:
    """One epoch of an engine over its steps."""

    engine: EngineRows
    runs: Deployment
    epoch_id: int
    steps: BucketSteps
    course: EngineCourse
    prompt_len: Floats
    generated_len: Floats


@dataclass(frozen=True, slots=True)
class Drift:
    """Random hourly drift of a service's demand and lengths, as logarithms."""

    first_ts: int
    demand: Floats
    prompt: Floats
    generated: Floats
    cached: Floats

    def at(self, ts: Ints) -> Ints:
        """Return the index of the hour of each instant."""
        return np.asarray(np.clip((ts - self.first_ts) // HOUR_S, 0, len(self.demand) - 1))


def drift(service: str, seed: int, first_ts: int, hours: int) -> Drift:
    """Return the drift of a service, which is the same for all its engines."""
    service_id = stable_id("wander", service) & (2**63 - 1)
    spreads = (DEMAND_SD, LENGTHS_SD, LENGTHS_SD, LENGTHS_SD)
    # One generator for each series, so that more hours do not change the earlier ones.
    return Drift(
        first_ts,
        *(simulator.drift(np.random.default_rng((seed, service_id, i)), hours, sd) for i, sd in enumerate(spreads)),
    )


def simulate(
    engine_row: EngineRows, steps: BucketSteps, drift: Drift, seed: int, market: Market, *, stuck_ts: int | None = None
) -> Iterator[SimulatedEpoch]:
    """Yield the simulated epochs of an engine over `steps`."""
    drawn, load = engine_row.drawn, engine_row.drawn.client_load
    versions = (drawn.runs,) if drawn.previous_runs is None else (drawn.previous_runs, drawn.runs)
    for runs, row in zip(versions, engine_row.epochs, strict=True):
        inside = (steps.ts >= row.start_ts) & (steps.ts < (row.end_ts or 2**62))
        if not inside.any():
            continue
        ts, seconds = steps.ts[inside], steps.seconds
        rng = np.random.default_rng((seed, engine_row.engine_id & (2**63 - 1), seconds, int(ts[0])))
        hour_index = drift.at(ts)
        prompt_len = load.prompt_len * np.exp(drift.prompt[hour_index])
        generated_len = load.generated_len * np.exp(drift.generated[hour_index])
        cached = np.clip(load.cached * np.exp(drift.cached[hour_index]), 0.0, 0.98)
        requests = simulator.requests(rng, load.shape, load.per_s, ts, seconds, drift.demand[hour_index])
        true_engine = engine(runs, drawn.truth, market, prompt_len, generated_len, cached)
        noise = np.exp(0.02 * rng.standard_normal(len(ts)))
        true_engine = replace(true_engine, scale=true_engine.scale[None, :] * noise[:, None])
        silent = None if stuck_ts is None else np.clip((ts + seconds - stuck_ts) / seconds, 0.0, 1.0)
        operation = course(true_engine, ts, seconds, requests, silent)
        yield SimulatedEpoch(
            engine_row, runs, row.epoch_id, BucketSteps(ts, seconds), operation, prompt_len, generated_len
        )


def devices_of(
    host: HostRows, epochs: Sequence[SimulatedEpoch], steps: BucketSteps, seed: int
) -> Iterator[tuple[int, BucketSteps, DeviceReadings]]:
    """Yield (device id, steps, readings) of each device of a host, unallocated devices included."""
    clock = float(host.drawn.host_type.clock)
    for slot, row in enumerate(host.devices):
        rng = np.random.default_rng((seed, row.device_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
        allocated = [epoch for epoch in epochs if slot in epoch.runs.device_ids]
        for epoch in allocated:
            share = epoch.runs.gpu_memory_utilization or 0.9
            yield (
                row.device_id,
                epoch.steps,
                working(
                    rng,
                    epoch.course,
                    host.accelerator,
                    (share + 0.012) * host.accelerator.memory_bytes,
                    len(epoch.runs.device_ids),
                    clock,
                    epoch.engine.drawn.truth.power,
                ),
            )
        if not allocated:
            yield row.device_id, steps, idling(rng, len(steps.ts), host.accelerator, clock)


MINUTES_H = 4
"""Hours before the end that have minutes, at least."""
TICKS_M = 3
"""Newest minutes that are written as ticks."""
SLICE_ROWS = 50_000
CENT = NANO_USD // 100
SET_BY = "pertoken demo"
SETTINGS_FILE = "pertoken.toml"
"""Name of the settings file, beside a database in a folder."""
OnProgress = Callable[[str, int, int], None]
"""Called with a phase, the number of hosts done, and the number of all hosts."""


@dataclass(frozen=True, slots=True)
class DemoInterval:
    """Start and end of a demo, in whole minutes."""

    start_ts: int
    minutes_ts: int
    """Start of the minutes; before it there are only hours."""
    end_ts: int

    @classmethod
    def of(cls, days: float, end_ts: int) -> DemoInterval:
        """Return the interval of `days` days up to an instant."""
        end_ts = end_ts // 60 * 60
        minutes = (end_ts - MINUTES_H * HOUR_S) // HOUR_S * HOUR_S
        return cls(min(minutes, int(end_ts - days * DAY_S)) // HOUR_S * HOUR_S, minutes, end_ts)

    @property
    def hours(self) -> BucketSteps:
        """Hours without minutes."""
        return BucketSteps(np.arange(self.start_ts, self.minutes_ts, HOUR_S), HOUR_S)

    @property
    def minutes(self) -> BucketSteps:
        """Minutes, up to the end."""
        return BucketSteps(np.arange(self.minutes_ts, self.end_ts, 60), 60)


@dataclass(frozen=True)
class Demo:
    """A generated demo, which `later` and `live` can continue."""

    fleet: DrawnFleet
    interval: DemoInterval
    market: Market
    hosts: Mapping[str, HostRows]
    engines: Sequence[EngineRows]


def make(
    location: StoreLocation, seed: int, hosts: int, days: float, end_ts: int, on_progress: OnProgress = lambda *_: None
) -> Demo:
    """Make a fleet with its history up to `end_ts` in an empty database, and its settings beside one in a folder.

    Raises StoreError.
    """
    market = load_market()
    on_progress("Drawing a fleet", 0, hosts)
    fleet, interval = draw_fleet(seed, hosts, days, market), DemoInterval.of(days, end_ts)
    for group in GROUPS:
        upgrade(location, group)
    hosts_by_name = host_rows(fleet, market, interval.start_ts)
    demo = Demo(
        fleet, interval, market, hosts_by_name, engine_rows(fleet, hosts_by_name, interval.start_ts, interval.end_ts)
    )
    with Writer(location) as writer:
        _identities(writer, list(hosts_by_name.values()), demo.engines, interval)
        for done, host in enumerate(hosts_by_name.values()):
            on_progress("Simulating hosts", done, hosts)
            host_engines = [engine for engine in demo.engines if engine.host is host]
            for table, rows in _history(host, host_engines, demo):
                restore(writer, table, rows)
        on_progress("Rolling up", hosts, hosts)
    with Writer(location) as writer:
        for host in hosts_by_name.values():
            host_engines = [engine for engine in demo.engines if engine.host is host]
            minutes = minutes_of(host, host_engines, demo, interval.minutes)
            writer.commit_all(list(minutes.within(interval.end_ts - 60 * TICKS_M, interval.end_ts).ticks(host_engines)))
        writer.roll_up()
    _priced(location, demo)
    if location.folder is not None:
        write_settings(location.folder, fleet)
    return demo


def _identities(
    writer: Writer, hosts: Sequence[HostRows], engines: Sequence[EngineRows], interval: DemoInterval
) -> None:
    seen = {"first_ts": interval.start_ts, "last_ts": interval.end_ts}
    devices = [device for host in hosts for device in host.devices]
    for table, values in (
        (t.host, [host.row for host in hosts]),
        (t.device, devices),
        (t.engine, [drawn.row for drawn in engines]),
        (t.deployment, [drawn.deployment for drawn in engines]),
    ):
        restore(writer, table, (_row(table, {**_values(value), **seen}) for value in values))
    epochs = [epoch for engine in engines for epoch in engine.epochs]
    restore(writer, t.epoch, (_row(t.epoch, _values(epoch)) for epoch in epochs))
    restore(writer, t.epoch_device, ((epoch.epoch_id, device_id) for epoch in epochs for device_id in epoch.device_ids))
    gaps = [gap for host in hosts for gap in host.capabilities]
    restore(writer, t.capability, (_row(t.capability, {**_values(gap), "since_ts": interval.start_ts}) for gap in gaps))
    restore(writer, t.event, (row for engine in engines for row in _events(engine, interval.end_ts)))


WEEK_S = 7 * 24 * HOUR_S


def _events(engine: EngineRows, end_ts: int) -> Iterator[tuple[object, ...]]:
    """Yield the events of an engine that an agent would store: discovered, restarted each week, and at its change.

    Without earlier restarts nothing could be proven of a change.
    """
    row, host_id = engine.row, engine.host.host_id
    what = f"{row.kind} at {row.base_url}"
    events = [(engine.start_ts, "engine_found", f"{what} found")]
    events += [
        (ts, "engine_restarted", f"{what}: its process was restarted")
        for ts in range((engine.changed_ts or end_ts) - WEEK_S, engine.start_ts, -WEEK_S)
    ]
    if engine.changed_ts is not None:
        events += [
            (engine.changed_ts, "engine_stopped", f"{what} stopped"),
            (engine.changed_ts + 40, "engine_found", f"{what} found"),
        ]
    for ts, kind, message in events:
        event_id = stable_id("event", host_id, kind, row.engine_id, message, ts // HOUR_S)
        values = {"event_id": event_id, "host_id": host_id, "ts": ts, "last_ts": ts, "count": 1}
        yield _row(t.event, {**values, "kind": kind, "subject_id": row.engine_id, "message": message})


def _history(
    host: HostRows, engines: Sequence[EngineRows], demo: Demo
) -> Iterator[tuple[Table, Iterable[tuple[object, ...]]]]:
    """Yield the roll-ups of one host: hours, and minutes up to the first tick."""
    interval = demo.interval
    if len(interval.hours.ts):
        yield from minutes_of(host, engines, demo, interval.hours).rows(HOUR_S)
    minutes = minutes_of(host, engines, demo, interval.minutes)
    until = interval.end_ts - 60 * TICKS_M
    yield from minutes.within(interval.minutes_ts, until).rows(60)
    yield from minutes.within(interval.minutes_ts, until // HOUR_S * HOUR_S).hourly().rows(HOUR_S)


def minutes_of(host: HostRows, engines: Sequence[EngineRows], demo: Demo, steps: BucketSteps) -> HostColumns:
    """Return the columns of one host over `steps`."""
    seed = demo.fleet.seed
    epochs = [
        epoch
        for engine in engines
        for epoch in simulate(
            engine, steps, _drift_of(engine, demo), seed, demo.market, stuck_ts=_stuck_ts(engine, demo)
        )
    ]
    devices: dict[int, list[Columns]] = defaultdict(list)
    for device_id, part, shown in devices_of(host, epochs, steps, seed):
        devices[device_id].append(device_columns(part, shown, activity=host.shows_activity))
    return HostColumns(
        host,
        _host_columns(host, epochs, steps, seed),
        devices,
        {epoch.epoch_id: deployment_columns(epoch.steps, epoch.course) for epoch in epochs},
        {
            epoch.epoch_id: histograms(
                epoch.runs.engine,
                epoch.course,
                epoch.engine.drawn.client_load.shape.trace,
                epoch.prompt_len,
                epoch.generated_len,
            )
            for epoch in epochs
        },
        {epoch.epoch_id: counter_columns(epoch.course, epoch.runs.engine) for epoch in epochs},
    )


def _host_columns(host: HostRows, epochs: Sequence[SimulatedEpoch], steps: BucketSteps, seed: int) -> Columns:
    rng = np.random.default_rng((seed, host.host_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
    busy, tokens_s = np.zeros(len(steps.ts)), np.zeros(len(steps.ts))
    for epoch in epochs:
        step_index = np.searchsorted(steps.ts, epoch.steps.ts)
        busy[step_index] += epoch.course.busy
        tokens_s[step_index] += epoch.course.generated_tokens / steps.seconds
    cpus, memory = host.drawn.host_type.cpus, host.drawn.host_type.memory_gib * 2**30
    cpu = np.clip(0.015 + 2.2 * busy / cpus + 0.004 * rng.standard_normal(len(busy)), 0.001, 1.0)
    used = memory * np.clip(0.08 + 0.25 * (len(epochs) > 0) + 0.004 * rng.standard_normal(len(busy)), 0.02, 0.95)
    return host_columns(steps, cpu, cpus, used, tokens_s)


def _drift_of(engine: EngineRows, demo: Demo) -> Drift:
    hours = (demo.interval.end_ts - demo.interval.start_ts) // HOUR_S + 2
    return drift(engine.drawn.runs.served_model, demo.fleet.seed, demo.interval.start_ts, hours)


def _stuck_ts(engine: EngineRows, demo: Demo) -> int | None:
    return int(demo.interval.end_ts - engine.drawn.stuck_h * HOUR_S) if engine.drawn.stuck_h else None


def _priced(location: StoreLocation, demo: Demo) -> None:
    """Store the costs of hosts: terms of ownership for owned ones, and a price per device-hour for all.

    A price is set by device name if all devices of that name cost the same and no other name contains it; else for
    each device.
    """
    ts, rates = demo.interval.start_ts, defaultdict[str, dict[str, int]](dict)
    for host in demo.hosts.values():
        nano = usd_per_hour(host.drawn.host_type, demo.market) / host.drawn.host_type.devices * NANO_USD
        for device in host.devices:
            rates[device.name][device.uuid] = round(nano / CENT) * CENT
    with AdviceRepository(location).writing() as connection:
        for drawn_host in demo.fleet.hosts:
            if drawn_host.host_type.capex_usd is not None:
                terms = Ownership(
                    capex_usd=drawn_host.host_type.capex_usd, nameplate_kw=drawn_host.host_type.nameplate_kw
                ).text
                repository.add_owned(connection, host=drawn_host.name, terms=terms, from_ts=0, set_ts=ts, set_by=SET_BY)
        for name, by_uuid in rates.items():
            alike = len(set(by_uuid.values())) == 1 and not any(name in longer for longer in rates if longer != name)
            for selector, nano in [(name, next(iter(by_uuid.values())))] if alike else by_uuid.items():
                repository.add_price(
                    connection,
                    selector=selector,
                    nano_usd_per_device_hour=nano,
                    from_ts=0,
                    set_ts=ts,
                    set_by=SET_BY,
                    note=None,
                )


def write_settings(folder: Path, fleet: DrawnFleet) -> None:
    """Write the settings of the fleet, for `--config`."""
    text = files("pertoken.demo").joinpath("settings.toml").read_text(encoding="utf-8")
    apart = [problem for problem in fleet.problems if problem.scene.isolation is not None]
    text += "".join(f'\n[services."{problem.service}"]\nisolation = "{problem.scene.isolation}"\n' for problem in apart)
    (folder / SETTINGS_FILE).write_text(text, encoding="utf-8")


def restore(writer: Writer, table: Table, rows: Iterable[tuple[object, ...]]) -> None:
    """Write rows of a table unchanged, in batches of `SLICE_ROWS`."""
    remaining = iter(rows)
    while part := list(islice(remaining, SLICE_ROWS)):
        writer.restore_new(CHECKSUMMED[table.name], cast("list[Values]", part))


def _values(row: DataclassInstance) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _row(table: Table, values: dict[str, object]) -> tuple[object, ...]:
    return tuple(values.get(column.name) for column in table.columns)
