"""Questions about a window that are answered in sums, added up where the telemetry is stored: one statement each.

Statements are built once and bound anew: building takes longer than some answers.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Connection,
    Dialect,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
    union_all,
)

from pertoken.store import telemetry as t
from pertoken.store.open import UNQUALIFIED, driver
from pertoken.store.read import Rows
from pertoken.store.rollup import HOUR, MINUTE
from pertoken.store.segments import Segments, between, column

_NS: Any = literal_column("1000000")
"""Nanoseconds of a whole device in a millisecond."""
_ROLLUPS = {
    "device": t.device_rollup,
    "host": t.host_rollup,
    "deployment": t.deployment_rollup,
    "share": t.share_rollup,
    "histogram": t.histogram_rollup,
    "engine_counter": t.engine_counter_rollup,
}


def _rows(dialect: str, rollup: str, lengths: tuple[int, ...], names: Sequence[str]) -> Any:
    """Columns of the buckets of segments of these lengths, which are bound by `_bound`."""
    parts = []
    for n, seconds in enumerate(lengths):
        table = _ROLLUPS[rollup][seconds]
        inside = between(
            dialect, table, bindparam(f"start{n}", type_=BigInteger), bindparam(f"end{n}", type_=BigInteger)
        )
        parts.append(select(*(column(table, name) for name in names)).where(inside))
    return union_all(*parts).subquery()


def _bound(segments: Segments) -> dict[str, int]:
    values = {f"start{n}": each.start for n, each in enumerate(segments)}
    return values | {f"end{n}": each.end for n, each in enumerate(segments)}


def _answer(connection: Connection, query: Any, values: Mapping[str, Any]) -> Rows:
    """Rows of a statement whose text is made once: SQLAlchemy names its schemas anew each time, which takes longer than
    an answer of a host."""
    if connection.dialect.name != "sqlite":
        return connection.execute(query, values).all()
    text, names, constants = _text(connection.dialect, query)
    return driver(connection).execute(text, [values.get(name, constants.get(name)) for name in names]).fetchall()


@lru_cache(maxsize=64)
def _text(dialect: Dialect, query: Any) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
    """The text of a statement, the names of what it binds in their order, and values bound already."""
    compiled = query.compile(dialect=dialect, **UNQUALIFIED, render_schema_translate=True)
    return str(compiled), tuple(compiled.positiontup), compiled.params


def _summed(connection: Connection, rollup: str, segments: Segments) -> Rows:
    lengths = tuple(each.seconds for each in segments)
    return connection.execute(_sums(connection.dialect.name, rollup, lengths), _bound(segments)).all()


@cache
def _sums(dialect: str, rollup: str, lengths: tuple[int, ...]) -> Select[Any]:
    """Sums of all of a roll-up by whose they are. Built once: building takes longer than some answers."""
    table = _ROLLUPS[rollup][MINUTE]
    keys = [each.name for each in table.primary_key if each.name != "ts"]
    left = (*keys, "ts", "revision", "whole_provenance")
    values = [each.name for each in table.columns if each.name not in left]
    rows = _rows(dialect, rollup, lengths, (*keys, *values)).c
    return select(*(rows[key] for key in keys), *(_sum(rows[name]).label(name) for name in values)).group_by(
        *(rows[key] for key in keys)
    )


def _sum(column: Any) -> Any:
    # PostgreSQL sums bigint as numeric, which would come back as Decimal.
    return cast(func.sum(column), BigInteger)


def device_totals(connection: Connection, segments: Segments) -> Rows:
    """Sums over segments for each device."""
    return _summed(connection, "device", segments)


def host_totals(connection: Connection, segments: Segments) -> Rows:
    """Sums over segments for each host."""
    return _summed(connection, "host", segments)


def deployment_totals(connection: Connection, segments: Segments) -> Rows:
    """Sums over segments for each epoch."""
    return _summed(connection, "deployment", segments)


def engine_counter_totals(connection: Connection, segments: Segments) -> Rows:
    """What each further counter of an engine grew by over segments: (epoch_id, metric, delta)."""
    return _summed(connection, "engine_counter", segments)


def share_time(connection: Connection, segments: Segments) -> Rows:
    """(device_id, epoch_id, held_ns, busy_ns): who held which device for how long in segments."""
    lengths = tuple(each.seconds for each in segments)
    return connection.execute(_shares(connection.dialect.name, lengths), _bound(segments)).all()


@cache
def _shares(dialect: str, lengths: tuple[int, ...]) -> Select[Any]:
    part = _rows(dialect, "share", lengths, ("device_id", "epoch_id", "held_ns", "busy_ns")).c
    # What is held whole is added up by epoch first: each of its devices was held as long (`store.shares`).
    of = _rows(dialect, "deployment", lengths, ("epoch_id", "whole_ms", "whole_busy_ms")).c
    ns = _sum(of.whole_ms) * _NS, _sum(of.whole_busy_ms) * _NS
    whole = select(of.epoch_id, ns[0].label("held_ns"), ns[1].label("busy_ns")).where(of.whole_ms.is_not(None))
    by_epoch, device = whole.group_by(of.epoch_id).subquery(), t.epoch_device.c
    held = union_all(
        select(part.device_id, part.epoch_id, part.held_ns, part.busy_ns),
        select(device.device_id, *by_epoch.c).join(by_epoch, by_epoch.c.epoch_id == device.epoch_id),
    ).subquery()
    keys = held.c.device_id, held.c.epoch_id
    return select(*keys, _sum(held.c.held_ns), _sum(held.c.busy_ns)).group_by(*keys)


def device_time(connection: Connection, segments: Segments) -> Rows:
    """(device_id, duration_ms): how long each device was there in segments."""
    lengths = tuple(each.seconds for each in segments)
    return connection.execute(_durations(connection.dialect.name, lengths), _bound(segments)).all()


@cache
def _durations(dialect: str, lengths: tuple[int, ...]) -> Select[Any]:
    rows = _rows(dialect, "device", lengths, ("device_id", "duration_ms")).c
    return select(rows.device_id, _sum(rows.duration_ms).label("duration_ms")).group_by(rows.device_id)


def held_by_hour(connection: Connection, segments: Segments, apart: bool) -> Rows:
    """(served model, hour, kind, name, uuid, device time held in ns) of devices that are paid for: a MIG device is,
    with its GPU. Devices of a kind and name together, with an empty uuid, or each `apart`."""
    lengths = tuple(each.seconds for each in segments)
    return _answer(connection, _held(connection.dialect.name, lengths, apart), _bound(segments))


@cache
def _held(dialect: str, lengths: tuple[int, ...], apart: bool) -> CompoundSelect[Any]:
    device, epoch_device = t.device.c, t.epoch_device.c
    kind = device.kind, device.name, device.uuid if apart else cast(literal_column("''"), Text)
    model, paid = t.deployment.c.served_model, device.parent_id.is_(None)
    rows = _rows(dialect, "share", lengths, ("device_id", "epoch_id", "ts", "held_ns")).c
    part = select(model, _hour(rows.ts), *kind, _sum(rows.held_ns)).join(t.device, device.device_id == rows.device_id)
    # What is held whole: the time of an epoch, once for each of its devices of a kind (`store.shares`).
    kinds = select(
        epoch_device.epoch_id, *(each.label(f"k{n}") for n, each in enumerate(kind)), func.count().label("n")
    )
    kinds = kinds.join(t.device, device.device_id == epoch_device.device_id).where(paid)
    of_epoch = kinds.group_by(epoch_device.epoch_id, *kind[: 3 if apart else 2]).subquery().c
    its = of_epoch.k0, of_epoch.k1, of_epoch.k2
    time = _rows(dialect, "deployment", lengths, ("epoch_id", "ts", "whole_ms")).c
    whole = select(model, _hour(time.ts), *its, _sum(time.whole_ms * of_epoch.n) * _NS).join(
        of_epoch.epoch_id.table, of_epoch.epoch_id == time.epoch_id
    )
    return union_all(
        _of_models(part, rows.epoch_id).where(paid).group_by(model, _hour(rows.ts), *kind[: 3 if apart else 2]),
        _of_models(whole, time.epoch_id).where(time.whole_ms.is_not(None)).group_by(model, _hour(time.ts), *its),
    )


def _of_models(query: Select[Any], epoch_id: Any) -> Select[Any]:
    joined = query.join(t.epoch, t.epoch.c.epoch_id == epoch_id)
    return joined.join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)


def tokens_by_hour(connection: Connection, segments: Segments, not_at: str) -> Rows:
    """(served model, hour, prompt tokens, generated tokens, buckets in which either is not known) of engines whose
    address does not begin with `not_at`."""
    lengths = tuple(each.seconds for each in segments)
    query = _tokens(connection.dialect.name, lengths)
    return _answer(connection, query, {**_bound(segments), "not_at": not_at})


@cache
def _tokens(dialect: str, lengths: tuple[int, ...]) -> Select[Any]:
    rows = _rows(dialect, "deployment", lengths, ("epoch_id", "ts", "prompt_tokens", "generated_tokens")).c
    keys = t.deployment.c.served_model, _hour(rows.ts)
    unknown = case((rows.prompt_tokens.is_(None) | rows.generated_tokens.is_(None), 1))
    sums = select(*keys, _sum(rows.prompt_tokens), _sum(rows.generated_tokens), func.count(unknown))
    served = _of_models(sums, rows.epoch_id).join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
    follows = t.engine.c.base_url.startswith(bindparam("not_at", type_=Text), autoescape=False)
    return served.where(~follows).group_by(*keys)


def _hour(ts: Any) -> Any:
    return ts - ts % literal_column(str(HOUR))


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
        .where(between(connection.dialect.name, table, start, end))
        .group_by(table.c.epoch_id, which)
    ).all()


def histograms(connection: Connection, segments: Segments, metrics: Collection[str] | None = None) -> Rows:
    """Bucket counts over segments, of all metrics or some: (epoch_id, metric, upper_bounds, bucket, total)."""
    lengths = tuple(each.seconds for each in segments)
    query = _histograms(connection.dialect.name, lengths, None if metrics is None else tuple(metrics))
    return connection.execute(query, _bound(segments)).all()


@cache
def _histograms(dialect: str, lengths: tuple[int, ...], metrics: tuple[str, ...] | None) -> Select[Any]:
    keys = ("epoch_id", "metric", "bucket_set_id", "bucket")
    rows = _rows(dialect, "histogram", lengths, (*keys, "count")).c
    summed = select(*(rows[key] for key in keys), _sum(rows["count"]).label("total")).group_by(
        *(rows[key] for key in keys)
    )
    found = (summed if metrics is None else summed.where(rows.metric.in_(metrics))).subquery()
    return select(found.c.epoch_id, found.c.metric, t.histogram_set.c.upper_bounds, found.c.bucket, found.c.total).join(
        t.histogram_set, t.histogram_set.c.bucket_set_id == found.c.bucket_set_id
    )
