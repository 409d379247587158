"""Questions about telemetry, one statement each, answered from roll-ups. Rows are plain named tuples.

A screen's statements are built once and bound again: building takes longer than running some of them.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
)

from pertoken.store.query.fast_rows import Rows, fetch, named_tuples
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR, MINUTE, ROLL_UP_S
from pertoken.store.schema.words import GATEWAY

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
) -> Any:
    """`newest_ts` of each owner; where its ticks are deleted or elsewhere, when it was last noted as there.

    Rows later than that note are of a clock that was set back since: they are not the newest. `dated`: as of `_AS_OF`.
    """
    owners = seen if owners is None else owners
    ticks = select(func.max(samples.c.ts)).where(samples.c[owner] == owners.c[owner])
    newest: Any = seen.c.last_ts
    if not _by_notes(dialect):
        # Ticks that a wrong clock filed in the future are passed over once it is right again: the note is then behind
        # them.
        latest = ticks.where(samples.c.ts <= seen.c.last_ts + LAG_S).scalar_subquery()
        newest = func.coalesce(latest, seen.c.last_ts)
    if dated:
        past = [] if _by_notes(dialect) else [ticks.where(samples.c.ts <= _AS_OF).scalar_subquery()]
        past += _last_buckets(_ROLLUPS[samples.name], owner, owners)
        since = owners.c.start_ts if "start_ts" in owners.c else owners.c.first_ts
        newest = case((seen.c.last_ts <= _AS_OF, newest), else_=func.coalesce(*past, since))
    return newest.label("newest_ts")


_ROLLUPS = {"host_sample": t.host_rollup, "device_sample": t.device_rollup, "deployment_sample": t.deployment_rollup}


def _last_buckets(rollups: Mapping[int, Table], owner: str, owners: Table) -> list[Any]:
    """Return the end of the last minute and of the last hour of an owner that began before `_AS_OF`.

    An hour that goes on after `_AS_OF` ends there.
    """
    minute, hour = rollups[MINUTE].c, rollups[HOUR].c
    end_of_hour = case((hour.ts > _AS_OF - HOUR, _AS_OF), else_=hour.ts + HOUR)
    return [
        select(func.max(end)).where(of[owner] == owners.c[owner], of.ts < _AS_OF).scalar_subquery()
        for of, end in ((minute, minute.ts + MINUTE), (hour, end_of_hour))
    ]


def hosts(connection: Connection, as_of: int | None = None) -> Rows:
    """Return every host, by name, with the `ts` of its newest row; of the time before `as_of` where it is given."""
    return fetch(connection, _hosts(connection.dialect.name, as_of is not None), {"as_of": as_of}, named=True)


@cache
def _hosts(dialect: str, dated: bool) -> Select[Any]:
    query = select(t.host, _newest(dialect, t.host, t.host_sample, "host_id", dated=dated)).order_by(t.host.c.name)
    return query.where(t.host.c.first_ts < _AS_OF) if dated else query


def devices(connection: Connection, start: int, as_of: int | None = None) -> Rows:
    """Return devices seen since `start` with their host's name, in no order. With `as_of` of the time before."""
    return fetch(connection, _devices(as_of is not None), {"start": start - LAG_S, "as_of": as_of}, named=True)


@cache
def _devices(dated: bool) -> Select[Any]:
    device, of = t.device.c, t.host.c
    query = (
        select(
            *(device.device_id, device.host_id, device.kind, device.uuid, device.vendor, device.name, device.slot),
            *(device.memory_bytes, device.parent_id, device.part_1e6, device.power_source, device.first_ts),
            *(device.power_limit_mw, device.links),
            of.name.label("host_name"),
        )
        .join(t.host, of.host_id == device.host_id)
        .where(device.last_ts >= _START)
    )
    return query.where(device.first_ts < _AS_OF) if dated else query


def newest_of_devices(connection: Connection, start: int, as_of: int | None = None) -> Rows:
    """Return (device_id, `ts` of the newest row) of the devices seen since `start`; with `as_of` of the time before
    it."""
    values = {"start": start - LAG_S, "as_of": as_of}
    return fetch(connection, _newest_of_devices(connection.dialect.name, as_of is not None), values)


@cache
def _newest_of_devices(dialect: str, dated: bool) -> Select[Any]:
    newest = _newest(dialect, t.device, t.device_sample, "device_id", dated=dated)
    query = select(t.device.c.device_id, newest).where(t.device.c.last_ts >= _START)
    return query.where(t.device.c.first_ts < _AS_OF) if dated else query


def epochs(connection: Connection, start: int, as_of: int | None = None) -> Rows:
    """Return epochs that served since `start`, with deployment, engine, host and the `ts` of their newest row; newest
    last.

    With `as_of` those that began before it; one that ended later is still open. Gateways serve no model: without them.
    """
    values = {"start": start, "noted": start - LAG_S, "as_of": as_of}
    return fetch(connection, _epochs(connection.dialect.name, as_of is not None), values, named=True)


@cache
def _epochs(dialect: str, dated: bool) -> Select[Any]:
    of = t.epoch.c
    end_ts = case((of.end_ts < _AS_OF, of.end_ts)).label("end_ts") if dated else of.end_ts
    query = (
        select(
            *(end_ts if column is of.end_ts else column for column in of),
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
    return query.where(of.start_ts < _AS_OF) if dated else query


def epoch_devices(connection: Connection, start: int) -> Rows:
    """Return (epoch_id, device_id) of every epoch that served since `start`, in the order of devices."""
    return fetch(connection, _EPOCH_DEVICES, {"start": start})


_START = bindparam("start", type_=BigInteger)
_SERVED = or_(t.epoch.c.end_ts.is_(None), t.epoch.c.end_ts > _START)
_EPOCH_DEVICES = (
    select(t.epoch_device)
    .where(t.epoch_device.c.epoch_id.in_(select(t.epoch.c.epoch_id).where(_SERVED)))
    .order_by(t.epoch_device.c.device_id)
)


def by_epoch(rows: Rows) -> dict[int, tuple[int, ...]]:
    """Return devices of each epoch, of rows of `epoch_devices`."""
    by_key: defaultdict[int, list[int]] = defaultdict(list)
    for epoch_id, device_id in rows:
        by_key[epoch_id].append(device_id)
    return {epoch_id: tuple(values) for epoch_id, values in by_key.items()}


def newest_agent_samples(connection: Connection, as_of: int | None = None) -> Rows:
    """Return what the agent of each host cost at its newest tick, where ticks are kept; `host_id` is NULL where not."""
    return fetch(connection, _agents(as_of is not None), {"as_of": as_of}, named=True)


@cache
def _agents(dated: bool) -> Select[Any]:
    tick, of = t.agent_sample.alias().c, t.agent_sample.c
    newest = select(func.max(tick.ts)).where(tick.host_id == t.host.c.host_id, tick.ts <= t.host.c.last_ts + LAG_S)
    newest = newest.where(tick.ts <= _AS_OF) if dated else newest
    # From the hosts, left to right: the other way round SQLite would go through all ticks.
    return (
        select(t.agent_sample)
        .select_from(t.host)
        .outerjoin(t.agent_sample, and_(of.host_id == t.host.c.host_id, of.ts == newest.scalar_subquery()))
    )


def first_ts(connection: Connection) -> int | None:
    """Return when the first host was first seen; None if nothing was recorded."""
    ((first,),) = fetch(connection, _FIRST)
    return None if first is None else int(first)


_FIRST = select(func.min(t.host.c.first_ts))


def newest_epoch(connection: Connection) -> tuple[int | None, int]:
    """Return when the newest epoch began, and how many there are; None and 0 without one."""
    ((newest, count),) = fetch(connection, _NEWEST_EPOCH)
    return (None if newest is None else int(newest), int(count))


_NEWEST_EPOCH = select(func.max(t.epoch.c.start_ts), func.count())


def recent_s(connection: Connection) -> int:
    """Return length of the newest stretch of minutes that describes the present: longer where hosts ship their
    minutes."""
    return 4 * MINUTE if _by_notes(connection.dialect.name) else 2 * MINUTE


def settled_s(connection: Connection) -> int:
    """Return multiple of seconds up to which the newest rows of a host that reports are in its roll-ups."""
    return MINUTE if _by_notes(connection.dialect.name) else ROLL_UP_S


def noted_every_s(connection: Connection, interval_s: int) -> int:
    """Return how often something is heard of a host that ticks every `interval_s`."""
    return max(interval_s, MINUTE) if _by_notes(connection.dialect.name) else interval_s


def missing(connection: Connection, as_of: int | None = None) -> Rows:
    """Return metrics that cannot be read, with owner, reason and remedy.

    With `as_of` those that could not be read since before it: what was so of the others then is not kept.
    """
    return fetch(connection, _missing(as_of is not None), {"as_of": as_of}, named=True)


@cache
def _missing(dated: bool) -> Select[Any]:
    of = t.capability.c
    query = select(t.capability).where(of.status != "ok").order_by(of.owner_id, of.metric)
    return query.where(of.since_ts <= _AS_OF) if dated else query


def owners_known_since(connection: Connection) -> dict[int, int]:
    """Return since when the holders of a device are known again, by device id, where they once were unknown."""
    capability = t.capability.c
    known = select(capability.owner_id, capability.since_ts).where(
        capability.metric == "processes", capability.status == "ok"
    )
    return {row.owner_id: row.since_ts for row in connection.execute(known)}


def events(connection: Connection, since: int, as_of: int | None = None) -> Rows:
    """Return the newest events first, at most fifty.

    With `as_of` of the time before it: one that happened again later counts once, at the time of its first occurrence.
    """
    return fetch(connection, _events(as_of is not None), {"start": since, "as_of": as_of}, named=True)


@cache
def _events(dated: bool) -> Select[Any]:
    of = t.event.c
    last_ts: Any = of.last_ts
    count: Any = of.count
    if dated:
        again = of.last_ts > _AS_OF
        last_ts, count = (case((again, one), else_=value) for one, value in ((of.ts, last_ts), (1, count)))
    columns = {"last_ts": last_ts, "count": count}
    query = (
        select(*(columns[column.name].label(column.name) if column.name in columns else column for column in of))
        .join(t.host, t.host.c.host_id == of.host_id)
        .where(last_ts >= _START, of.last_ts <= t.host.c.last_ts + LAG_S)
        .order_by(last_ts.desc())
        .limit(50)
    )
    return query.where(of.ts <= _AS_OF) if dated else query


def restarts(connection: Connection, engine_id: int, end: int) -> tuple[int, ...]:
    """Return when an engine was seen to have restarted up to `end`, from the beginning on, oldest first.

    Several restarts within an hour of the clock are one: the last.
    """
    of = t.event.c
    query = select(of.last_ts).where(of.kind == "engine_restarted", of.subject_id == engine_id, of.last_ts <= end)
    return tuple(connection.execute(query.order_by(of.last_ts)).scalars())


def first_and_last(connection: Connection) -> tuple[int | None, int | None]:
    """`ts` of the oldest and the newest host row."""
    dialect = connection.dialect.name
    table = t.host_rollup[HOUR] if _by_notes(dialect) else t.host_sample
    oldest = select(func.min(table.c.ts)).where(table.c.host_id == t.host.c.host_id).scalar_subquery()
    rows = named_tuples(connection, select(oldest, _newest(dialect, t.host, t.host_sample, "host_id")))
    first = min((oldest_ts for oldest_ts, _ in rows if oldest_ts is not None), default=None)
    return first, max((newest_ts for _, newest_ts in rows), default=None)


def whole_hour(connection: Connection, end: int) -> bool:
    """Return whether the hour that `end` lies in is as new as its minutes, and holds none after `end`.

    Hosts ship the hour under way with its minutes, and it lacks at most the minute under way; a host itself adds it up
    later.
    """
    if not _by_notes(connection.dialect.name):
        return False
    ((newest,),) = fetch(connection, _NEWEST)
    return newest is not None and newest <= end


_NEWEST = select(func.max(t.host.c.last_ts))
