"""A demo in a database: its history written as an agent's roll-ups, its newest minutes as ticks."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
from sqlalchemy import Table

from pertoken.catalog.market import Market, load_market
from pertoken.costs.prices.owned import Ownership
from pertoken.demo.drawn import draw_fleet
from pertoken.demo.fleet import DrawnFleet
from pertoken.demo.played import PlayedEpoch, Wandering, devices_of, play, wandering
from pertoken.demo.rows import buckets
from pertoken.demo.rows.histograms import histograms
from pertoken.demo.rows.identities import EngineRows, HostRows, engine_rows, host_rows
from pertoken.demo.rows.ticks import HostMinutes
from pertoken.demo.worth import usd_per_hour
from pertoken.migrations import upgrade
from pertoken.store import repository
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.integrity.checksums import CHECKSUMMED
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.ids import stable_id
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD

HOUR_S, DAY_S = 3600, 86_400
MINUTES_H = 4
"""Hours before the end of which minutes are kept, at least."""
TICKS_M = 3
"""Newest minutes that are written as ticks."""
SLICE_ROWS = 50_000
CENT = NANO_USD // 100
SET_BY = "pertoken demo"
SETTINGS_FILE = "pertoken.toml"
"""Name of the settings file beside the database."""
Told = Callable[[str, int, int], None]
"""Called with a phase, the hosts that are done, and all of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when a demo reaches, in whole minutes."""

    start_ts: int
    minutes_ts: int
    """From here on there are minutes."""
    end_ts: int

    @classmethod
    def of(cls, days: float, end_ts: int) -> "Span":
        """Return the span of so many days up to an instant."""
        end_ts = end_ts // 60 * 60
        minutes = (end_ts - MINUTES_H * HOUR_S) // HOUR_S * HOUR_S
        return cls(min(minutes, int(end_ts - days * DAY_S)) // HOUR_S * HOUR_S, minutes, end_ts)

    @property
    def hours(self) -> buckets.Steps:
        """Hours of which there are no minutes."""
        return buckets.Steps(np.arange(self.start_ts, self.minutes_ts, HOUR_S), HOUR_S)

    @property
    def minutes(self) -> buckets.Steps:
        """Minutes."""
        return buckets.Steps(np.arange(self.minutes_ts, self.end_ts, 60), 60)


@dataclass(frozen=True)
class Made:
    """A demo that was made."""

    fleet: DrawnFleet
    span: Span
    market: Market
    hosts: Mapping[str, HostRows]
    engines: Sequence[EngineRows]


def make(place: StoreLocation, seed: int, hosts: int, days: float, end_ts: int, told: Told = lambda *_: None) -> Made:
    """Make a fleet with its history up to `end_ts` in an empty database. Raises StoreError."""
    market = load_market()
    told("Drawing a fleet", 0, hosts)
    fleet, span = draw_fleet(seed, hosts, days, market), Span.of(days, end_ts)
    for group in GROUPS:
        upgrade(place, group)
    known = host_rows(fleet, market, span.start_ts)
    made = Made(fleet, span, market, known, engine_rows(fleet, known, span.start_ts, span.end_ts))
    with Writer(place) as writer:
        _identities(writer, list(known.values()), made.engines, span)
        for done, host in enumerate(known.values()):
            told("Simulating hosts", done, hosts)
            own = [each for each in made.engines if each.host is host]
            for table, rows in _history(host, own, made):
                restore(writer, table, rows)
        told("Rolling up", hosts, hosts)
    with Writer(place) as writer:
        for host in known.values():
            own = [each for each in made.engines if each.host is host]
            writer.commit_all(list(minutes_of(host, own, made, span.minutes).ticks(own, TICKS_M)))
        writer.roll_up()
    _priced(place, made)
    _settings(place, fleet)
    return made


def _identities(writer: Writer, hosts: Sequence[HostRows], engines: Sequence[EngineRows], span: Span) -> None:
    seen = {"first_ts": span.start_ts, "last_ts": span.end_ts}
    devices = [device for host in hosts for device in host.devices]
    for table, values in (
        (t.host, [host.row for host in hosts]),
        (t.device, devices),
        (t.engine, [each.row for each in engines]),
        (t.deployment, [each.deployment for each in engines]),
    ):
        restore(writer, table, (_row(table, {**_values(value), **seen}) for value in values))
    epochs = [epoch for each in engines for epoch in each.epochs]
    restore(writer, t.epoch, (_row(t.epoch, _values(epoch)) for epoch in epochs))
    restore(writer, t.epoch_device, ((epoch.epoch_id, each) for epoch in epochs for each in epoch.device_ids))
    gaps = [gap for host in hosts for gap in host.capabilities]
    restore(writer, t.capability, (_row(t.capability, {**_values(gap), "since_ts": span.start_ts}) for gap in gaps))
    restore(writer, t.event, (row for each in engines for row in _events(each)))


def _events(of: EngineRows) -> Iterator[tuple[Any, ...]]:
    """Yield what an agent noted of an engine: when it was found, and that it was started again."""
    row, host_id = of.row, of.host.host_id
    what = f"{row.kind} at {row.base_url}"
    noted = [(of.start_ts, "engine_found", f"{what} found")]
    if of.changed_ts is not None:
        noted += [
            (of.changed_ts, "engine_stopped", f"{what} stopped"),
            (of.changed_ts + 40, "engine_found", f"{what} found"),
        ]
    for ts, kind, message in noted:
        event_id = stable_id("event", host_id, kind, row.engine_id, message, ts // HOUR_S)
        values = {"event_id": event_id, "host_id": host_id, "ts": ts, "last_ts": ts, "count": 1}
        yield _row(t.event, {**values, "kind": kind, "subject_id": row.engine_id, "message": message})


def _history(
    host: HostRows, engines: Sequence[EngineRows], made: Made
) -> Iterator[tuple[Table, Iterable[tuple[Any, ...]]]]:
    """Yield the roll-ups of one host: hours, and minutes up to those that are written as ticks."""
    span = made.span
    if len(span.hours.ts):
        yield from minutes_of(host, engines, made, span.hours).rows(HOUR_S)
    minutes = minutes_of(host, engines, made, span.minutes)
    until = span.end_ts - 60 * TICKS_M
    yield from minutes.rows(60, until)
    yield from minutes.hours((until - span.minutes_ts) // HOUR_S)


def minutes_of(host: HostRows, engines: Sequence[EngineRows], made: Made, steps: buckets.Steps) -> "Minutes":
    """Return what one host does in some steps."""
    epochs = [
        one
        for each in engines
        for one in play(each, steps, _wanders(each, made), made.fleet.seed, made.market, stuck_ts=_stuck_ts(each, made))
    ]
    return Minutes(host, epochs, steps, made.fleet.seed)


class Minutes:
    """All columns of one host over some steps."""

    def __init__(self, host: HostRows, epochs: Sequence[PlayedEpoch], steps: buckets.Steps, seed: int) -> None:
        self.host_rows, self.epochs, self.steps = host, epochs, steps
        self.devices: dict[int, list[buckets.Columns]] = defaultdict(list)
        for device_id, part, shown in devices_of(host, epochs, steps, seed):
            self.devices[device_id].append(buckets.device_columns(part, shown, activity=host.shows_activity))
        self.deployments = {each.epoch_id: buckets.deployment_columns(each.steps, each.course) for each in epochs}
        self.histograms = {
            each.epoch_id: histograms(
                each.runs.engine, each.course, each.of.drawn.asked.shape.trace, each.prompt_len, each.generated_len
            )
            for each in epochs
        }
        self.counters = {each.epoch_id: buckets.counter_columns(each.course, each.runs.engine) for each in epochs}
        self.host = _host_columns(host, epochs, steps, seed)

    def rows(self, seconds: int, until: int = 2**62) -> Iterator[tuple[Table, Iterable[tuple[Any, ...]]]]:
        """Yield rows of the roll-ups of this length that begin before `until`."""
        yield t.host_rollup[seconds], _rows(t.host_rollup[seconds], self.host_rows.host_id, _before(self.host, until))
        for device_id, parts in self.devices.items():
            for part in parts:
                yield t.device_rollup[seconds], _rows(t.device_rollup[seconds], device_id, _before(part, until))
        for epoch_id, columns in self.deployments.items():
            table = t.deployment_rollup[seconds]
            yield table, _rows(table, epoch_id, _before(columns, until))
            ts = _ts(columns)
            some = ts < until
            yield (
                t.histogram_rollup[seconds],
                buckets.histogram_rows(
                    epoch_id,
                    ts[some],
                    [type(one)(one.metric, one.bounds, one.counts[some]) for one in self.histograms[epoch_id]],
                ),
            )
            counted = {name: deltas[some] for name, deltas in self.counters[epoch_id].items()}
            yield t.engine_counter_rollup[seconds], buckets.counter_rows(epoch_id, ts[some], counted)

    def hours(self, n: int) -> Iterator[tuple[Table, Iterable[tuple[Any, ...]]]]:
        """Yield the rows of the first whole hours of these minutes, added up."""
        if not n:
            return
        host = buckets.hourly(self.host, 0, n)
        yield t.host_rollup[HOUR_S], _rows(t.host_rollup[HOUR_S], self.host_rows.host_id, host)
        for device_id, (part, *_) in self.devices.items():
            table = t.device_rollup[HOUR_S]
            yield table, _rows(table, device_id, buckets.hourly(part, 0, n))
        for epoch_id, columns in self.deployments.items():
            table = t.deployment_rollup[HOUR_S]
            hourly = buckets.hourly(columns, 0, n)
            yield table, _rows(table, epoch_id, hourly)
            ts = _ts(hourly)
            together = [
                type(one)(one.metric, one.bounds, one.counts[: 60 * n].reshape(n, 60, -1).sum(axis=1))
                for one in self.histograms[epoch_id]
            ]
            yield t.histogram_rollup[HOUR_S], buckets.histogram_rows(epoch_id, ts, together)
            counted = {
                name: each[: 60 * n].reshape(n, 60).sum(axis=1) for name, each in self.counters[epoch_id].items()
            }
            yield t.engine_counter_rollup[HOUR_S], buckets.counter_rows(epoch_id, ts, counted)

    def ticks(self, engines: Sequence[EngineRows], minutes: int) -> Iterator[Any]:
        """Yield the ticks of the last minutes."""
        found = HostMinutes(self.host_rows, engines, self.steps.ts[-minutes:])
        found.host = _last(self.host, minutes)
        found.devices = {device_id: _last(parts[-1], minutes) for device_id, parts in self.devices.items()}
        found.deployments = {epoch_id: _last(each, minutes) for epoch_id, each in self.deployments.items()}
        found.histograms = {
            epoch_id: [type(one)(one.metric, one.bounds, one.counts[-minutes:]) for one in each]
            for epoch_id, each in self.histograms.items()
        }
        found.counters = {
            epoch_id: {name: deltas[-minutes:] for name, deltas in each.items()}
            for epoch_id, each in self.counters.items()
        }
        return found.ticks()


def _host_columns(host: HostRows, epochs: Sequence[PlayedEpoch], steps: buckets.Steps, seed: int) -> buckets.Columns:
    rng = np.random.default_rng((seed, host.host_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
    busy, tokens_s = np.zeros(len(steps.ts)), np.zeros(len(steps.ts))
    for each in epochs:
        at = np.searchsorted(steps.ts, each.steps.ts)
        busy[at] += each.course.busy
        tokens_s[at] += each.course.generated_tokens / steps.seconds
    cpus, memory = host.drawn.place.cpus, host.drawn.place.memory_gib * 2**30
    cpu = np.clip(0.015 + 2.2 * busy / cpus + 0.004 * rng.standard_normal(len(busy)), 0.001, 1.0)
    used = memory * np.clip(0.08 + 0.25 * (len(epochs) > 0) + 0.004 * rng.standard_normal(len(busy)), 0.02, 0.95)
    return buckets.host_columns(steps, cpu, cpus, used, tokens_s)


def _wanders(of: EngineRows, made: Made) -> Wandering:
    hours = (made.span.end_ts - made.span.start_ts) // HOUR_S + 2
    return wandering(of.drawn.runs.served_model, made.fleet.seed, made.span.start_ts, hours)


def _stuck_ts(of: EngineRows, made: Made) -> int | None:
    return int(made.span.end_ts - of.drawn.stuck_h * HOUR_S) if of.drawn.stuck_h else None


def _priced(place: StoreLocation, made: Made) -> None:
    """Store what hosts cost: of owned ones as `pertoken prices own` does, of all as `pertoken prices set` does.

    A price is set by the name of the device where all of that name cost the same and no other name holds it, else
    device by device.
    """
    ts, rates = made.span.start_ts, defaultdict[str, dict[str, int]](dict)
    for host in made.hosts.values():
        nano = usd_per_hour(host.drawn.place, made.market) / host.drawn.place.devices * NANO_USD
        for device in host.devices:
            rates[device.name][device.uuid] = round(nano / CENT) * CENT
    with AdviceRepository(place).writing() as connection:
        for each in made.fleet.hosts:
            if each.place.capex_usd is not None:
                terms = Ownership(capex_usd=each.place.capex_usd, nameplate_kw=each.place.nameplate_kw).text
                repository.add_owned(connection, host=each.name, terms=terms, from_ts=0, set_ts=ts, set_by=SET_BY)
        for name, by_uuid in rates.items():
            alike = len(set(by_uuid.values())) == 1 and not any(name in other for other in rates if other != name)
            for selector, nano in [(name, next(iter(by_uuid.values())))] if alike else by_uuid.items():
                price: dict[str, Any] = {
                    "selector": selector,
                    "nano_usd_per_device_hour": nano,
                    "from_ts": 0,
                    "set_ts": ts,
                }
                repository.add_price(connection, **price, set_by=SET_BY, note=None)


def _settings(place: StoreLocation, fleet: DrawnFleet) -> None:
    """Write the settings of the fleet beside its database, for `--config`."""
    if place.folder is not None:
        text = files("pertoken.demo").joinpath("settings.toml").read_text(encoding="utf-8")
        apart = [each for each in fleet.problems if each.scene.isolation is not None]
        text += "".join(f'\n[services."{each.service}"]\nisolation = "{each.scene.isolation}"\n' for each in apart)
        (place.folder / SETTINGS_FILE).write_text(text, encoding="utf-8")


def restore(writer: Writer, table: Table, rows: Iterable[tuple[Any, ...]]) -> None:
    """Write rows of a table as they are, slice by slice."""
    left = iter(rows)
    while part := list(islice(left, SLICE_ROWS)):
        writer.restore_new(CHECKSUMMED[table.name], part)


def _values(of: Any) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(of)}


def _row(table: Table, values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(values.get(column.name) for column in table.columns)


def _rows(table: Table, owner: int, columns: buckets.Columns) -> Iterator[tuple[Any, ...]]:
    return buckets.table_rows(table, owner, columns)


def _ts(columns: buckets.Columns) -> Any:
    return columns["ts"]


def _before(columns: buckets.Columns, until: int) -> buckets.Columns:
    some = _ts(columns) < until
    return {name: value[some] if isinstance(value, np.ndarray) else value for name, value in columns.items()}


def _last(columns: buckets.Columns, minutes: int) -> buckets.Columns:
    return {name: value[-minutes:] if isinstance(value, np.ndarray) else value for name, value in columns.items()}
