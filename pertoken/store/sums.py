"""Questions about a window that are answered in sums, added up where the telemetry is stored: one statement each.

Statements are built once and bound anew: building takes longer than some answers.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, cast, func, select, union_all

from pertoken.store import telemetry as t
from pertoken.store.read import Rows
from pertoken.store.rollup import HOUR, MINUTE
from pertoken.store.segments import Segment, Segments, between

_IN: Any = bindparam("ids", expanding=True)
_START: Any = bindparam("start")
_END: Any = bindparam("end")
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
        parts.append(select(*(table.c[name] for name in names)).where(inside))
    return union_all(*parts).subquery()


def _bound(segments: Segments) -> dict[str, int]:
    values = {f"start{n}": each.start for n, each in enumerate(segments)}
    return values | {f"end{n}": each.end for n, each in enumerate(segments)}


def _summed(connection: Connection, rollup: str, segments: Segments) -> Rows:
    lengths = tuple(each.seconds for each in segments)
    return connection.execute(_sums(connection.dialect.name, rollup, lengths), _bound(segments)).all()


@cache
def _sums(dialect: str, rollup: str, lengths: tuple[int, ...]) -> Select[Any]:
    """Sums of all of a roll-up by whose they are. Built once: building takes longer than some answers."""
    table = _ROLLUPS[rollup][MINUTE]
    keys = [column.name for column in table.primary_key if column.name != "ts"]
    values = [column.name for column in table.columns if column.name not in (*keys, "ts", "revision", "provenance")]
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
    return _summed(connection, "share", segments)


def device_time(connection: Connection, segments: Segments) -> Rows:
    """(device_id, duration_ms): how long each device was there in segments."""
    lengths = tuple(each.seconds for each in segments)
    return connection.execute(_durations(connection.dialect.name, lengths), _bound(segments)).all()


@cache
def _durations(dialect: str, lengths: tuple[int, ...]) -> Select[Any]:
    rows = _rows(dialect, "device", lengths, ("device_id", "duration_ms")).c
    return select(rows.device_id, _sum(rows.duration_ms).label("duration_ms")).group_by(rows.device_id)


def held_by_bucket(connection: Connection, segment: Segment, device_ids: Collection[int]) -> Rows:
    """(epoch_id, ts, device time held in ns) over some devices together, in the buckets of a segment."""
    values = {"ids": list(device_ids), "start": segment.start, "end": segment.end}
    return connection.execute(_held(segment.seconds), values).all()


def tokens_by_bucket(connection: Connection, segment: Segment, epoch_ids: Collection[int]) -> Rows:
    """(epoch_id, ts, prompt tokens, generated tokens) of some epochs, in the buckets of a segment."""
    values = {"ids": list(epoch_ids), "start": segment.start, "end": segment.end}
    return connection.execute(_tokens(segment.seconds), values).all()


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


@cache
def _held(seconds: int) -> Select[Any]:
    of = t.share_rollup[seconds].c
    inside = of.device_id.in_(_IN) & (of.ts >= _START) & (of.ts < _END)
    sums = select(of.epoch_id, of.ts, _sum(of.held_ns).label("held_ns"))
    return sums.where(inside).group_by(of.epoch_id, of.ts)


@cache
def _tokens(seconds: int) -> Select[Any]:
    of = t.deployment_rollup[seconds].c
    inside = of.epoch_id.in_(_IN) & (of.ts >= _START) & (of.ts < _END)
    return select(of.epoch_id, of.ts, of.prompt_tokens, of.generated_tokens).where(inside)
