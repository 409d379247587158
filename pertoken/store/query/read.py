"""Questions about telemetry, one statement each, answered from roll-ups. Rows are plain named tuples.

A screen's statements are built once and bound again: building takes longer than running some of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Label,
    ScalarSelect,
    Table,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
)

from pertoken.printable import short
from pertoken.store.connect.open import left_out
from pertoken.store.connect.sqlite import driver
from pertoken.store.query.rollups import Query, fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.domains import DOMAINS, Domain
from pertoken.store.schema.fleet import row_fault
from pertoken.store.schema.rows import EpochRow, HostRow, StoredEvent, UnreadableMetric
from pertoken.store.schema.shared import GATEWAY
from pertoken.store.schema.telemetry import HOUR, MINUTE, ROLL_UP_S

LAG_S = 2 * MINUTE
"""How far behind its newest bucket the note that something is there may be: it is made once a minute, and the first
minute of a window begins before the window."""


def _by_notes(dialect: str) -> bool:
    """Return whether ticks are elsewhere: a fleet's server learns once a minute that something still exists."""
    return dialect == "postgresql"


_AS_OF = bindparam("as_of", type_=BigInteger)
"""Whole minute after which nothing counts, where a question is asked about the past."""


def _newest(
    dialect: str, seen: Table, samples: Table, owner: str, owners: Table | None = None, *, dated: bool = False
) -> Label[int]:
    """`newest_ts` of each owner; where its ticks are deleted or elsewhere, when it was last noted as there.

    Rows later than that note are of a clock that was set back since: they are not the newest. `dated`: as of `_AS_OF`.
    """
    owners = seen if owners is None else owners
    ticks = select(func.max(samples.c.ts)).where(samples.c[owner] == owners.c[owner])
    newest: ColumnElement[int] = seen.c.last_ts
    if not _by_notes(dialect):
        # Ticks that a wrong clock filed in the future are passed over once it is right again: the note is then behind
        # them.
        latest = ticks.where(samples.c.ts <= seen.c.last_ts + LAG_S).scalar_subquery()
        newest = func.coalesce(latest, seen.c.last_ts)
    if dated:
        past = [] if _by_notes(dialect) else [ticks.where(samples.c.ts <= _AS_OF).scalar_subquery()]
        past += _last_buckets(t.ROLLUPS[samples.name.removesuffix("_sample")], owner, owners)
        since = owners.c.start_ts if "start_ts" in owners.c else owners.c.first_ts
        newest = case((seen.c.last_ts <= _AS_OF, newest), else_=func.coalesce(*past, since))
    return newest.label("newest_ts")


def _last_buckets(rollups: Mapping[int, Table], owner: str, owners: Table) -> list[ScalarSelect[int]]:
    """Return the end of the last minute and of the last hour of an owner that began before `_AS_OF`.

    An hour that goes on after `_AS_OF` ends there.
    """
    minute, hour = rollups[MINUTE].c, rollups[HOUR].c
    end_of_hour = case((hour.ts > _AS_OF - HOUR, _AS_OF), else_=hour.ts + HOUR)
    return [
        select(func.max(end)).where(buckets[owner] == owners.c[owner], buckets.ts < _AS_OF).scalar_subquery()
        for buckets, end in ((minute, minute.ts + MINUTE), (hour, end_of_hour))
    ]


class KnownHost(NamedTuple):
    """A host with its identity, as last noted."""

    host_id: int
    name: str
    machine_id: str | None
    boot_id: str | None
    boot_ms: int | None
    os: str | None
    cpu_name: str | None
    cpu_count: int | None
    memory_bytes: int | None
    agent_version: str
    interval_s: int
    dmi_vendor: str | None
    dmi_product: str | None
    cloud: str | None
    instance_type: str | None
    region: str | None
    purchase: str | None
    first_ts: int
    last_ts: int
    plug_source: str | None
    newest_ts: int
    """Of its newest row."""


def hosts(connection: Connection, as_of: int | None = None) -> Sequence[KnownHost]:
    """Return every host, by name, with the `ts` of its newest row; of the time before `as_of` where it is given."""
    return fetch(connection, _hosts(connection.dialect.name, as_of is not None), {"as_of": as_of}, KnownHost)


@cache
def _hosts(dialect: str, dated: bool) -> Query:
    query = select(t.host, _newest(dialect, t.host, t.host_sample, "host_id", dated=dated)).order_by(t.host.c.name)
    return query.where(t.host.c.first_ts < _AS_OF) if dated else query


class KnownDevice(NamedTuple):
    """A device with the name of its host."""

    device_id: int
    host_id: int
    kind: str
    uuid: str
    vendor: str | None
    name: str
    slot: int | None
    memory_bytes: int | None
    parent_id: int | None
    part_1e6: int | None
    power_source: str | None
    first_ts: int
    power_limit_mw: int | None
    links: str | None
    host_name: str


def devices(connection: Connection, start: int, as_of: int | None = None) -> Sequence[KnownDevice]:
    """Return devices seen since `start` with their host's name, in no order. With `as_of` of the time before."""
    return fetch(connection, _devices(as_of is not None), {"start": start - LAG_S, "as_of": as_of}, KnownDevice)


@cache
def _devices(dated: bool) -> Query:
    device, host = t.device.c, t.host.c
    query = (
        select(*(device[name] for name in KnownDevice._fields[:-1]), host.name.label("host_name"))
        .join(t.host, host.host_id == device.host_id)
        .where(device.last_ts >= _START)
    )
    return query.where(device.first_ts < _AS_OF) if dated else query


def newest_of_devices(connection: Connection, start: int, as_of: int | None = None) -> Sequence[tuple[int, int]]:
    """Return (device_id, `ts` of the newest row) of the devices seen since `start`; with `as_of` of the time before
    it."""
    values = {"start": start - LAG_S, "as_of": as_of}
    return fetch(connection, _newest_of_devices(connection.dialect.name, as_of is not None), values)


@cache
def _newest_of_devices(dialect: str, dated: bool) -> Query:
    newest = _newest(dialect, t.device, t.device_sample, "device_id", dated=dated)
    query = select(t.device.c.device_id, newest).where(t.device.c.last_ts >= _START)
    return query.where(t.device.c.first_ts < _AS_OF) if dated else query


class KnownEpoch(NamedTuple):
    """An epoch with its deployment, engine and host."""

    epoch_id: int
    deployment_id: int
    start_ts: int
    end_ts: int | None
    engine_version: str | None
    knobs: str
    served_model: str
    model_path: str | None
    model_facts: str | None
    newest_ts: int
    """Of its newest row."""
    engine_id: int
    engine_kind: str
    base_url: str
    host_id: int
    host_name: str
    interval_s: int


def epochs(connection: Connection, start: int, as_of: int | None = None) -> Sequence[KnownEpoch]:
    """Return epochs that served since `start`, with deployment, engine, host and the `ts` of their newest row; newest
    last.

    With `as_of` those that began before it; one that ended later is still open. Gateways serve no model: without them.
    """
    values = {"start": start, "noted": start - LAG_S, "as_of": as_of}
    return fetch(connection, _epochs(connection.dialect.name, as_of is not None), values, KnownEpoch)


@cache
def _epochs(dialect: str, dated: bool) -> Query:
    epoch = t.epoch.c
    end_ts = case((epoch.end_ts < _AS_OF, epoch.end_ts)).label("end_ts") if dated else epoch.end_ts
    query = (
        select(
            *(end_ts if column is epoch.end_ts else column for column in epoch),
            t.deployment.c.served_model,
            t.deployment.c.model_path,
            t.deployment.c.model_facts,
            _newest(dialect, t.deployment, t.deployment_sample, "epoch_id", t.epoch, dated=dated),
            t.engine.c.engine_id,
            t.engine.c.kind.label("engine_kind"),
            t.engine.c.base_url,
            t.host.c.host_id,
            t.host.c.name.label("host_name"),
            t.host.c.interval_s,
        )
        .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
        .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
        .join(t.host, t.host.c.host_id == t.deployment.c.host_id)
        .where(t.deployment.c.last_ts >= bindparam("noted", type_=BigInteger), _SERVED)
        .where(t.engine.c.found_by != literal_column(f"'{GATEWAY}'"))
        .order_by(t.epoch.c.deployment_id, t.epoch.c.start_ts)
    )
    return query.where(epoch.start_ts < _AS_OF) if dated else query


def epoch_devices(connection: Connection, start: int) -> Sequence[tuple[int, int]]:
    """Return (epoch_id, device_id) of every epoch that served since `start`, in the order of devices."""
    return fetch(connection, _EPOCH_DEVICES, {"start": start})


_START = bindparam("start", type_=BigInteger)
_SERVED = or_(t.epoch.c.end_ts.is_(None), t.epoch.c.end_ts > _START)
_EPOCH_DEVICES = (
    select(t.epoch_device)
    .where(t.epoch_device.c.epoch_id.in_(select(t.epoch.c.epoch_id).where(_SERVED)))
    .order_by(t.epoch_device.c.device_id)
)


def by_epoch(rows: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    """Return devices of each epoch, of rows of `epoch_devices`."""
    by_key: defaultdict[int, list[int]] = defaultdict(list)
    for epoch_id, device_id in rows:
        by_key[epoch_id].append(device_id)
    return {epoch_id: tuple(values) for epoch_id, values in by_key.items()}


class AgentTick(NamedTuple):
    """Cost of the agent of a host at its newest tick."""

    host_id: int | None
    """NULL where no ticks are kept."""
    ts: int
    duration_ms: int
    observed_ms: int
    cpu_ms: int | None
    rss_bytes: int | None
    tick_ms: int | None
    missed_ticks: int | None
    driver_calls: int | None


def newest_agent_samples(connection: Connection, as_of: int | None = None) -> Sequence[AgentTick]:
    """Return what the agent of each host cost at its newest tick, where ticks are kept; `host_id` is NULL where not."""
    return fetch(connection, _agents(as_of is not None), {"as_of": as_of}, AgentTick)


@cache
def _agents(dated: bool) -> Query:
    tick, sample = t.agent_sample.alias().c, t.agent_sample.c
    newest = select(func.max(tick.ts)).where(tick.host_id == t.host.c.host_id, tick.ts <= t.host.c.last_ts + LAG_S)
    newest = newest.where(tick.ts <= _AS_OF) if dated else newest
    # From the hosts, left to right: the other way round SQLite would go through all ticks.
    return (
        select(t.agent_sample)
        .select_from(t.host)
        .outerjoin(t.agent_sample, and_(sample.host_id == t.host.c.host_id, sample.ts == newest.scalar_subquery()))
    )


def first_ts(connection: Connection) -> int | None:
    """Return when the first host was first seen; None if nothing was recorded."""
    rows: Sequence[tuple[int | None]] = fetch(connection, _FIRST)
    return rows[0][0]


_FIRST = select(func.min(t.host.c.first_ts))


def newest_epoch(connection: Connection) -> tuple[int | None, int]:
    """Return when the newest epoch began, and how many there are; None and 0 without one."""
    rows: Sequence[tuple[int | None, int]] = fetch(connection, _NEWEST_EPOCH)
    return rows[0]


_NEWEST_EPOCH = select(func.max(t.epoch.c.start_ts), func.count())


def recent_s(connection: Connection) -> int:
    """Return length of the newest interval of minutes that describes the present: longer where hosts ship their
    minutes."""
    return 4 * MINUTE if _by_notes(connection.dialect.name) else 2 * MINUTE


def settled_s(connection: Connection) -> int:
    """Return multiple of seconds up to which the newest rows of a host that reports are in its roll-ups."""
    return MINUTE if _by_notes(connection.dialect.name) else ROLL_UP_S


def noted_every_s(connection: Connection, interval_s: int) -> int:
    """Return how often something is heard of a host that ticks every `interval_s`."""
    return max(interval_s, MINUTE) if _by_notes(connection.dialect.name) else interval_s


def missing(connection: Connection, as_of: int | None = None) -> Sequence[UnreadableMetric]:
    """Return metrics that cannot be read, with owner, reason and remedy.

    With `as_of` those that could not be read since before it: what was so of the others then is not kept.
    """
    return fetch(connection, _missing(as_of is not None), {"as_of": as_of}, UnreadableMetric)


@cache
def _missing(dated: bool) -> Query:
    capability = t.capability.c
    query = select(t.capability).where(capability.status != "ok").order_by(capability.owner_id, capability.metric)
    return query.where(capability.since_ts <= _AS_OF) if dated else query


def owners_known_since(connection: Connection) -> dict[int, int]:
    """Return since when the holders of a device are known again, by device id, where they once were unknown."""
    capability = t.capability.c
    readable = select(capability.owner_id, capability.since_ts).where(
        capability.metric == "processes", capability.status == "ok"
    )
    return {row.owner_id: row.since_ts for row in connection.execute(readable)}


def events(connection: Connection, since: int, as_of: int | None = None) -> Sequence[StoredEvent]:
    """Return the newest events first, at most fifty.

    With `as_of` of the time before it: one that happened again later counts once, at the time of its first occurrence.
    """
    return fetch(connection, _events(as_of is not None), {"start": since, "as_of": as_of}, StoredEvent)


@cache
def _events(dated: bool) -> Query:
    event = t.event.c
    columns: dict[str, ColumnElement[int]] = {"last_ts": event.last_ts, "count": event.count}
    if dated:
        again = event.last_ts > _AS_OF
        columns = {
            "last_ts": case((again, event.ts), else_=event.last_ts).label("last_ts"),
            "count": case((again, 1), else_=event.count).label("count"),
        }
    query = (
        select(*(columns.get(column.name, column) for column in event))
        .join(t.host, t.host.c.host_id == event.host_id)
        .where(columns["last_ts"] >= _START, event.last_ts <= t.host.c.last_ts + LAG_S)
        .order_by(columns["last_ts"].desc())
        .limit(50)
    )
    return query.where(event.ts <= _AS_OF) if dated else query


def restarts(connection: Connection, engine_id: int, end: int) -> tuple[int, ...]:
    """Return when an engine was seen to have restarted up to `end`, from the beginning on, oldest first.

    Several restarts within an hour of the clock are one: the last.
    """
    event = t.event.c
    query = select(event.last_ts).where(
        event.kind == "engine_restarted", event.subject_id == engine_id, event.last_ts <= end
    )
    return tuple(connection.execute(query.order_by(event.last_ts)).scalars())


def first_and_last(connection: Connection) -> tuple[int | None, int | None]:
    """`ts` of the oldest and the newest host row."""
    dialect = connection.dialect.name
    table = t.host_rollup[HOUR] if _by_notes(dialect) else t.host_sample
    oldest = select(func.min(table.c.ts)).where(table.c.host_id == t.host.c.host_id).scalar_subquery()
    query = select(oldest, _newest(dialect, t.host, t.host_sample, "host_id"))
    rows = connection.execute(query).all()
    first = min((oldest_ts for oldest_ts, _ in rows if oldest_ts is not None), default=None)
    return first, max((newest_ts for _, newest_ts in rows), default=None)


def whole_hour(connection: Connection, end: int) -> bool:
    """Return whether the hour that `end` lies in is as new as its minutes, and holds none after `end`.

    Hosts ship the hour under way with its minutes, and it lacks at most the minute under way; a host itself adds it up
    later.
    """
    if not _by_notes(connection.dialect.name):
        return False
    rows: Sequence[tuple[int | None]] = fetch(connection, _NEWEST)
    ((newest,),) = rows
    return newest is not None and newest <= end


_NEWEST = select(func.max(t.host.c.last_ts))


@dataclass(frozen=True, slots=True)
class RecordedHost:
    """A host, and the interval that its roll-ups cover."""

    host_id: int
    name: str
    machine_id: str | None
    first_ts: int
    """When it was first seen."""
    until_ts: int | None
    """End of its newest bucket; None without any."""
    uuids: frozenset[str]
    """Of its devices."""


def recorded_hosts(connection: Connection) -> list[RecordedHost]:
    """Return all hosts of a database."""
    until: dict[int, int] = {}
    for seconds in (HOUR, MINUTE):
        table = t.host_rollup[seconds]
        for host_id, ts in connection.execute(select(table.c.host_id, func.max(table.c.ts)).group_by(table.c.host_id)):
            # The hour under way has minutes; an hour without any was whole when they were deleted.
            until[host_id] = ts + seconds
    uuids: dict[int, set[str]] = {}
    for host_id, uuid in connection.execute(select(t.device.c.host_id, t.device.c.uuid)):
        uuids.setdefault(host_id, set()).add(uuid)
    host = t.host.c
    return [
        RecordedHost(
            row.host_id,
            row.name,
            row.machine_id,
            row.first_ts,
            until.get(row.host_id),
            frozenset(uuids.get(row.host_id, ())),
        )
        for row in connection.execute(select(host.host_id, host.name, host.machine_id, host.first_ts))
    ]


def newest_host(connection: Connection) -> HostRow | None:
    """Return the host that was seen last; None in a database without any."""
    columns = [t.host.c[field.name] for field in fields(HostRow)]
    row = connection.execute(select(*columns).order_by(t.host.c.last_ts.desc(), t.host.c.host_id).limit(1)).first()
    return None if row is None else HostRow(*row)


def gateway_counted_until(connection: Connection, engine_id: int) -> int | None:
    """Return the end of the newest bucket in which a gateway counted tokens; None without any."""
    epochs = (
        select(t.epoch.c.epoch_id)
        .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
        .where(t.deployment.c.engine_id == engine_id)
    )
    for seconds in (MINUTE, HOUR):
        counters = t.engine_counter_rollup[seconds].c
        newest = connection.execute(select(func.max(counters.ts)).where(counters.epoch_id.in_(epochs))).scalar()
        if newest is not None:
            return int(newest) + seconds
    return None


def open_epochs(connection: Connection, host_id: int) -> list[EpochRow]:
    """Return the epochs of a host's deployments that have not ended, newest last."""
    devices = by_epoch(fetch(connection, select(t.epoch_device)))
    query = (
        select(t.epoch)
        .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
        .where(t.deployment.c.host_id == host_id, t.epoch.c.end_ts.is_(None))
        .order_by(t.epoch.c.start_ts)
    )
    return [
        EpochRow(**row, device_ids=tuple(sorted(devices.get(row["epoch_id"], ()))))
        for row in connection.execute(query).mappings()
    ]


MAX_DEVICES = 160
"""Devices of one host that are read: the largest has 16 GPUs of at most 7 MIG instances, and its CPUs."""
MAX_DEPLOYMENTS = 64
"""Deployments of one host that are read, the newest: a screen of one host has no use for more, and its JSON stays below
1 MB."""
MAX_EPOCHS = 8_192
"""Epochs of one host that are read, the newest: one every ten minutes for eight weeks."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """A kind of value in the rows of one host that is not used as it is stored."""

    host_id: int
    field: str
    """Table and column, such as `epoch.knobs`; the table alone where whole rows are left out."""
    reason: str

    def __str__(self) -> str:
        """`epoch.knobs: tp must be a whole number from 1 to 1024 ranks`."""
        return f"{self.field}: {short(self.reason)}"


class _NamedRow(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...
    @property
    def host_id(self) -> int: ...
    @property
    def _replace(self) -> Callable[..., Self]: ...
    def __getitem__(self, position: int, /) -> object: ...


HostedRow = TypeVar("HostedRow", bound=_NamedRow)


@dataclass(frozen=True, slots=True)
class CheckedRows(Generic[HostedRow]):
    """Rows whose values can be used, and the faults of those that were replaced or left out."""

    rows: Sequence[HostedRow]
    faults: frozenset[RowFault] = frozenset()


_OF_HOST = {"newest_ts": DOMAINS["host"]["last_ts"], "host_name": DOMAINS["host"]["name"]}
_OF_DEPLOYMENT = {f"deployment.{name}": name for name in ("served_model", "model_path", "model_facts")}
_OF_ENGINE = {"engine.kind": "engine_kind", "engine.base_url": "base_url"}


def checked_hosts(rows: Iterable[HostedRow]) -> CheckedRows[HostedRow]:
    """Return rows of `read.hosts`."""
    return _checked(rows, {f"host.{name}": name for name in DOMAINS["host"]})


def checked_devices(rows: Iterable[HostedRow]) -> CheckedRows[HostedRow]:
    """Return rows of `read.devices`; of a host that has more than `MAX_DEVICES` those that were first seen last."""
    valid = _checked(rows, {f"device.{name}": name for name in DOMAINS["device"]})
    return _limited(valid, "device", "device_id", MAX_DEVICES, "first_ts")


def checked_epochs(rows: Iterable[HostedRow]) -> CheckedRows[HostedRow]:
    """Return rows of `read.epochs`, oldest first; of a host with too many deployments or epochs the newest."""
    columns = {f"epoch.{name}": name for name in DOMAINS["epoch"]} | _OF_DEPLOYMENT | _OF_ENGINE
    valid = _checked(rows, columns)
    valid = _limited(valid, "deployment", "deployment_id", MAX_DEPLOYMENTS, "newest_ts")
    valid = _limited(valid, "epoch", "epoch_id", MAX_EPOCHS, "start_ts")
    return CheckedRows(sorted(valid.rows, key=attrgetter("deployment_id", "start_ts")), valid.faults)


def refused(connection: Connection, start: int) -> frozenset[RowFault]:
    """Return faults of what hosts shipped since `start`, by a fleet's server, or of rows left out of a host's file."""
    dialect = connection.dialect
    if dialect.name == "sqlite":
        files = (Path(row[2]) for row in driver(connection).execute("PRAGMA database_list"))
        tables = {
            pair for file in files for host_id, names in left_out(file).items() for pair in product([host_id], names)
        }
        return frozenset(RowFault(*pair, "has rows with values or times that are not possible") for pair in tables)
    if not dialect.has_table(connection, row_fault.name, schema=row_fault.schema):
        return frozenset()
    query = select(row_fault.c.host_id, row_fault.c.field, row_fault.c.reason)
    return frozenset(RowFault(*row) for row in connection.execute(query.where(row_fault.c.last_ts >= start)))


def _checked(rows: Iterable[HostedRow], columns: Mapping[str, str]) -> CheckedRows[HostedRow]:
    """Return rows with each value within its domain; `columns` are their names by table and column."""
    valid = list(rows)
    faults = set()
    present = [(source, column, _domain(source)) for source, column in columns.items()]
    present += [("", column, domain) for column, domain in _OF_HOST.items()]
    for source, column, domain in present:
        if not valid or column not in valid[0]._fields:
            continue
        position = valid[0]._fields.index(column)
        replaced = _replaced({row[position] for row in valid}, domain)
        for number, row in enumerate(valid if replaced else ()):
            if row[position] not in replaced:
                continue
            value, reason = replaced[row[position]]
            valid[number] = row._replace(**{column: value})
            if source and reason is not None:
                faults.add(RowFault(row.host_id, source, reason))
    return CheckedRows(valid, frozenset(faults))


def _domain(source: str) -> Domain:
    table, _, column = source.partition(".")
    return DOMAINS[table][column]


def _replaced(values: Iterable[object], domain: Domain) -> dict[object, tuple[object, str | None]]:
    """Return the replacement of each value that is not within its domain, with the reason."""
    results = {value: domain.check(value) for value in values if value is not None}
    return {
        value: (result.value, result.reason)
        for value, result in results.items()
        if result.value is not value or result.reason is not None
    }


def _limited(checked: CheckedRows[HostedRow], table: str, key: str, max_n: int, newest: str) -> CheckedRows[HostedRow]:
    """Leave out rows of hosts that have more than `max_n` different keys, but for the newest ones."""
    if len(checked.rows) <= max_n:
        return checked
    rows = checked.rows
    newest_by_key: dict[int, dict[int, int]] = defaultdict(dict)
    for row in rows:
        keys, ts = newest_by_key[row.host_id], getattr(row, newest)
        keys[getattr(row, key)] = max(keys.get(getattr(row, key), 0), ts or 0)
    excess = {host_id: len(keys) for host_id, keys in newest_by_key.items() if len(keys) > max_n}
    kept = {
        host_id: set(sorted(newest_by_key[host_id], key=newest_by_key[host_id].__getitem__)[-max_n:])
        for host_id in excess
    }
    rows = [row for row in rows if row.host_id not in kept or getattr(row, key) in kept[row.host_id]]
    faults = {
        RowFault(host_id, table, f"{n:,} in this window: the newest {max_n:,} of a host are read")
        for host_id, n in excess.items()
    }
    return CheckedRows(rows, checked.faults | faults)
