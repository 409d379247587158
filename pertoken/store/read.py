"""Questions about telemetry, one statement each, answered from roll-ups. Rows are plain named tuples."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, Table, and_, bindparam, case, cast, func, or_, select

from pertoken.store import telemetry as t
from pertoken.store.rollup import HOUR, MINUTE
from pertoken.store.shares import shares

Rows = Sequence[Any]
LAG_S = 2 * MINUTE
"""How far behind its newest bucket the note that something is there may be: it is made once a minute, and the first
minute of a window begins before the window."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Buckets of one length with start <= ts < end."""

    seconds: int
    start: int
    end: int


def segments(start: int, end: int, fine: Collection[int] = ()) -> tuple[Segment, ...]:
    """Cover [start, end) with whole hours where possible and minutes elsewhere, without overlap.

    `fine` holds instants at which something changed (a price): their hour is read by the minute, and no segment
    reaches across one.
    """
    start, end = start // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE
    split = {ts // HOUR * HOUR for ts in fine if ts % HOUR}
    cuts = {-(-ts // MINUTE) * MINUTE for ts in fine}
    found: list[Segment] = []
    ts = start
    while ts < end:
        whole = ts % HOUR == 0 and ts + HOUR <= end and ts not in split
        seconds = HOUR if whole else MINUTE
        until = ts + HOUR if whole else min(end, ts // HOUR * HOUR + HOUR, *(cut for cut in cuts if cut > ts))
        if found and found[-1].seconds == seconds and ts not in cuts:
            found[-1] = Segment(seconds, found[-1].start, until)
        else:
            found.append(Segment(seconds, ts, until))
        ts = until
    return tuple(found)


def _sum(column: Any) -> Any:
    # PostgreSQL sums bigint as numeric, which would come back as Decimal.
    return cast(func.sum(column), BigInteger)


def _columns(table: Table) -> list[Any]:
    """Columns of a roll-up; how many samples had a gauge is said also where that is NULL, as many as there are."""
    samples = table.c.get("samples")
    return [
        func.coalesce(each, samples).label(each.name) if each.name.endswith("_n") and each.nullable else each
        for each in table.columns
    ]


def _shares(connection: Connection, segment: Segment) -> Any:
    parts, deployments = t.share_rollup[segment.seconds], t.deployment_rollup[segment.seconds]
    rows, whole = _within(connection, parts, segment), _within(connection, deployments, segment)
    return shares(segment.seconds, rows, whole)


def _by_notes(connection: Connection) -> bool:
    """Whether ticks are elsewhere: a fleet's server is told once a minute that something is still there."""
    return connection.dialect.name == "postgresql"


def _newest(connection: Connection, seen: Table, samples: Table, owner: str, owners: Table | None = None) -> Any:
    """`newest_ts` of each owner; where its ticks are deleted or elsewhere, when it was last noted as there."""
    if _by_notes(connection):
        return seen.c.last_ts.label("newest_ts")
    owners = seen if owners is None else owners
    newest = select(func.max(samples.c.ts)).where(samples.c[owner] == owners.c[owner]).scalar_subquery()
    return func.coalesce(newest, seen.c.last_ts).label("newest_ts")


def _within(connection: Connection, table: Table, segment: Segment) -> Any:
    return _between(connection, table, segment.start, segment.end)


def _between(connection: Connection, table: Table, start: int, end: int) -> Any:
    """Rows with start <= ts < end."""
    inside = and_(table.c.ts >= start, table.c.ts < end)
    if connection.dialect.name != "sqlite":
        return inside
    # SQLite has no index but the key, which begins with the owner: by owner it reads the window and not all of history.
    owner = next(iter(table.primary_key))
    owners = {"device_id": t.device, "epoch_id": t.epoch, "host_id": t.host}[owner.name]
    return and_(owner.in_(select(owners.c[owner.name])), inside)


def hosts(connection: Connection) -> Rows:
    """Every host, by name."""
    return connection.execute(select(t.host).order_by(t.host.c.name)).all()


def devices(connection: Connection, start: int) -> Rows:
    """Devices seen since `start` with their host's name and cloud instance and the `ts` of their newest row.

    GPUs come first, by slot.
    """
    return connection.execute(
        select(
            t.device,
            t.host.c.name.label("host_name"),
            t.host.c.cloud,
            t.host.c.instance_type,
            t.host.c.region,
            t.host.c.purchase,
            _newest(connection, t.device, t.device_sample, "device_id"),
        )
        .join(t.host, t.host.c.host_id == t.device.c.host_id)
        .where(t.device.c.last_ts >= start - LAG_S)
        .order_by(t.host.c.name, case((t.device.c.kind == "cpu", 1), else_=0), t.device.c.slot, t.device.c.uuid)
    ).all()


def epochs(connection: Connection, start: int) -> Rows:
    """Epochs that served since `start`, with deployment, engine, host and the `ts` of their newest row; newest last."""
    return connection.execute(
        select(
            t.epoch,
            t.deployment.c.served_model,
            t.deployment.c.model_path,
            t.deployment.c.model_facts,
            _newest(connection, t.deployment, t.deployment_sample, "epoch_id", t.epoch),
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
        .where(t.deployment.c.last_ts >= start - LAG_S, or_(t.epoch.c.end_ts.is_(None), t.epoch.c.end_ts > start))
        .order_by(t.epoch.c.deployment_id, t.epoch.c.start_ts)
    ).all()


def epoch_devices(connection: Connection) -> dict[int, tuple[int, ...]]:
    """Devices of each epoch."""
    found: dict[int, tuple[int, ...]] = {}
    for epoch_id, device_id in connection.execute(select(t.epoch_device).order_by(t.epoch_device.c.device_id)):
        found[epoch_id] = (*found.get(epoch_id, ()), device_id)
    return found


def device_totals(connection: Connection, start: int, end: int) -> Rows:
    """Sums over [start, end) for each device, by the minute."""
    return _totals(connection, t.device_rollup[MINUTE], ("device_id",), start, end)


def host_totals(connection: Connection, start: int, end: int) -> Rows:
    """Sums over [start, end) for each host, by the minute."""
    return _totals(connection, t.host_rollup[MINUTE], ("host_id",), start, end)


def _totals(connection: Connection, table: Table, keys: tuple[str, ...], start: int, end: int) -> Rows:
    left = (*keys, "ts", "revision", "whole_provenance")
    sums = [_sum(column).label(column.name) for column in _columns(table) if column.name not in left]
    return connection.execute(
        select(*(table.c[key] for key in keys), func.max(table.c.ts).label("ts"), *sums)
        .where(_between(connection, table, start, end))
        .group_by(*(table.c[key] for key in keys))
    ).all()


def device_time(connection: Connection, segment: Segment) -> Rows:
    """(device_id, duration_ms): how long each device was there in a segment."""
    table = t.device_rollup[segment.seconds]
    return connection.execute(
        select(table.c.device_id, _sum(table.c.duration_ms).label("duration_ms"))
        .where(_within(connection, table, segment))
        .group_by(table.c.device_id)
    ).all()


def share_time(connection: Connection, segment: Segment) -> Rows:
    """(device_id, epoch_id, held_ns, busy_ns): who held which device for how long in a segment; busy within held."""
    held = _shares(connection, segment).subquery().c
    busy = case((held.busy_ns < held.held_ns, held.busy_ns), else_=held.held_ns)
    return connection.execute(
        select(
            held.device_id, held.epoch_id, _sum(held.held_ns).label("held_ns"), _sum(busy).label("busy_ns")
        ).group_by(held.device_id, held.epoch_id)
    ).all()


def device_history(connection: Connection, device_ids: Collection[int], start: int, end: int) -> Rows:
    """Roll-ups of some devices over [start, end), by device and time: whole hours, and minutes at the edges."""
    found: list[Any] = []
    for segment in segments(start, end):
        table = t.device_rollup[segment.seconds]
        query = select(*_columns(table)).where(table.c.device_id.in_(device_ids), _within(connection, table, segment))
        found += connection.execute(query.order_by(table.c.device_id, table.c.ts)).all()
    return found


def device_buckets(connection: Connection, segment: Segment) -> Rows:
    """Device roll-ups of a segment."""
    table = t.device_rollup[segment.seconds]
    return connection.execute(select(*_columns(table)).where(_within(connection, table, segment))).all()


def host_buckets(connection: Connection, segment: Segment) -> Rows:
    """Host roll-ups of a segment."""
    table = t.host_rollup[segment.seconds]
    return connection.execute(select(*_columns(table)).where(_within(connection, table, segment))).all()


def share_buckets(connection: Connection, segment: Segment) -> Rows:
    """Who held which device in the buckets of a segment."""
    return connection.execute(_shares(connection, segment)).all()


def held_by_bucket(connection: Connection, segment: Segment, device_ids: Collection[int]) -> Rows:
    """(epoch_id, ts, device time held in ns) over some devices together, in the buckets of a segment."""
    values = {"ids": list(device_ids), "start": segment.start, "end": segment.end}
    return connection.execute(_held(segment.seconds), values).all()


def tokens_by_bucket(connection: Connection, segment: Segment, epoch_ids: Collection[int]) -> Rows:
    """(epoch_id, ts, prompt tokens, generated tokens) of some epochs, in the buckets of a segment."""
    values = {"ids": list(epoch_ids), "start": segment.start, "end": segment.end}
    return connection.execute(_tokens(segment.seconds), values).all()


def models(connection: Connection) -> Rows:
    """(epoch_id, served_model, base_url of the engine) of every epoch."""
    return connection.execute(_MODELS).all()


def payers(connection: Connection) -> Rows:
    """(device_id, kind, name, uuid) of every device that is paid for: a MIG device is, with its GPU."""
    return connection.execute(_PAYERS).all()


_MODELS = (
    select(t.epoch.c.epoch_id, t.deployment.c.served_model, t.engine.c.base_url)
    .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
    .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
)
_PAYERS = select(t.device.c.device_id, t.device.c.kind, t.device.c.name, t.device.c.uuid).where(
    t.device.c.parent_id.is_(None)
)
_IN: Any = bindparam("ids", expanding=True)
_START: Any = bindparam("start")
_END: Any = bindparam("end")


@cache
def _held(seconds: int) -> Select[Any]:
    # Built once, as the three beside it: building takes longer than the answer.
    part, deployment, device = t.share_rollup[seconds].c, t.deployment_rollup[seconds].c, t.epoch_device.c.device_id
    rows = part.device_id.in_(_IN) & (part.ts >= _START) & (part.ts < _END)
    whole = device.in_(_IN) & (deployment.ts >= _START) & (deployment.ts < _END)
    held = shares(seconds, rows, whole).subquery().c
    return select(held.epoch_id, held.ts, _sum(held.held_ns).label("held_ns")).group_by(held.epoch_id, held.ts)


@cache
def _tokens(seconds: int) -> Select[Any]:
    of = t.deployment_rollup[seconds].c
    inside = of.epoch_id.in_(_IN) & (of.ts >= _START) & (of.ts < _END)
    return select(of.epoch_id, of.ts, of.prompt_tokens, of.generated_tokens).where(inside)


def deployment_buckets(connection: Connection, segment: Segment, epoch_id: int | None = None) -> Rows:
    """Deployment roll-ups of a segment, by epoch and time."""
    table = t.deployment_rollup[segment.seconds]
    query = select(*_columns(table)).where(_within(connection, table, segment)).order_by(table.c.epoch_id, table.c.ts)
    return connection.execute(query if epoch_id is None else query.where(table.c.epoch_id == epoch_id)).all()


def deployment_totals(connection: Connection, segment: Segment) -> Rows:
    """Sums over a segment for each epoch."""
    return _totals(connection, t.deployment_rollup[segment.seconds], ("epoch_id",), segment.start, segment.end)


def generated_by_slice(connection: Connection, start: int, end: int, slice_s: int) -> Rows:
    """(epoch_id, slice, generated tokens, observed ms) for slices of `slice_s` counted from the epoch of time."""
    table = t.deployment_rollup[HOUR if slice_s % HOUR == 0 else MINUTE]
    which = (table.c.ts - table.c.ts % slice_s).label("slice_ts")
    return connection.execute(
        select(
            table.c.epoch_id,
            which,
            _sum(table.c.generated_tokens).label("generated_tokens"),
            _sum(table.c.duration_ms).label("duration_ms"),
        )
        .where(_between(connection, table, start, end))
        .group_by(table.c.epoch_id, which)
    ).all()


def histograms(connection: Connection, segment: Segment, metrics: Collection[str] | None = None) -> Rows:
    """Bucket counts over a segment, of all metrics or some: (epoch_id, metric, upper_bounds, bucket, total)."""
    table = t.histogram_rollup[segment.seconds]
    keys = table.c.epoch_id, table.c.metric, table.c.bucket_set_id, table.c.bucket
    summed = (
        select(*keys, _sum(table.c["count"]).label("total")).where(_within(connection, table, segment)).group_by(*keys)
    )
    if metrics is not None:
        summed = summed.where(table.c.metric.in_(metrics))
    found = summed.subquery()
    return connection.execute(
        select(found.c.epoch_id, found.c.metric, t.histogram_set.c.upper_bounds, found.c.bucket, found.c.total).join(
            t.histogram_set, t.histogram_set.c.bucket_set_id == found.c.bucket_set_id
        )
    ).all()


def engine_counter_totals(connection: Connection, segment: Segment) -> Rows:
    """What each further counter of an engine grew by over a segment: (epoch_id, metric, delta)."""
    table = t.engine_counter_rollup[segment.seconds]
    return connection.execute(
        select(table.c.epoch_id, table.c.metric, _sum(table.c.delta).label("delta"))
        .where(_within(connection, table, segment))
        .group_by(table.c.epoch_id, table.c.metric)
    ).all()


def engine_counter_buckets(connection: Connection, segment: Segment) -> Rows:
    """Roll-ups of further counters of a segment."""
    table = t.engine_counter_rollup[segment.seconds]
    return connection.execute(select(table).where(_within(connection, table, segment))).all()


def newest(connection: Connection) -> dict[int, int]:
    """`ts` of the newest row of each host."""
    if _by_notes(connection):
        return {host_id: ts for host_id, ts in connection.execute(select(t.host.c.host_id, t.host.c.last_ts))}
    query = select(t.host_sample.c.host_id, func.max(t.host_sample.c.ts)).group_by(t.host_sample.c.host_id)
    return {host_id: ts for host_id, ts in connection.execute(query)}


def newest_agent_samples(connection: Connection) -> dict[int, Any]:
    """What the agent of each host cost at its newest tick, where ticks are kept."""
    sample = t.agent_sample.alias()
    newest = select(func.max(sample.c.ts)).where(sample.c.host_id == t.host.c.host_id).scalar_subquery()
    query = select(t.agent_sample).join(
        t.host, and_(t.host.c.host_id == t.agent_sample.c.host_id, t.agent_sample.c.ts == newest)
    )
    return {row.host_id: row for row in connection.execute(query)}


def recent_s(connection: Connection) -> int:
    """Length of the newest stretch of minutes that says how it is now: longer where hosts ship their minutes."""
    return 4 * MINUTE if _by_notes(connection) else 2 * MINUTE


def noted_every_s(connection: Connection, interval_s: int) -> int:
    """How often something is heard of a host that ticks every `interval_s`."""
    return max(interval_s, MINUTE) if _by_notes(connection) else interval_s


def missing(connection: Connection) -> Rows:
    """Metrics that cannot be read, with owner, reason and remedy."""
    return connection.execute(
        select(t.capability)
        .where(t.capability.c.status != "ok")
        .order_by(t.capability.c.owner_id, t.capability.c.metric)
    ).all()


def events(connection: Connection, since: int, limit: int = 50) -> Rows:
    """Newest events first."""
    return connection.execute(
        select(t.event).where(t.event.c.last_ts >= since).order_by(t.event.c.last_ts.desc()).limit(limit)
    ).all()


def first_and_last(connection: Connection) -> tuple[int | None, int | None]:
    """`ts` of the oldest and the newest host row."""
    if _by_notes(connection):
        oldest = select(func.min(t.host_rollup[HOUR].c.ts)).scalar_subquery()
        first, last = connection.execute(select(oldest, select(func.max(t.host.c.last_ts)).scalar_subquery())).one()
        return first, last
    first, last = connection.execute(select(func.min(t.host_sample.c.ts), func.max(t.host_sample.c.ts))).one()
    return first, last
