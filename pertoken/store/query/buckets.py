"""Buckets of a window as columns of text, for whoever makes arrays of them.

An answer is one row: each column as whole numbers joined by commas. Making a Python number of every value takes twice
as long as writing and reading that text (384 hours of 6 columns: 0.45 ms as rows, 0.23 ms as text). A value that is
not known is `NULL`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, Text, bindparam, case, cast, func, literal_column, or_, select

from pertoken.store.query.fast_rows import Rows, fetch
from pertoken.store.query.segments import Segment, Segments, whole
from pertoken.store.query.sums import Shape, bounds, parts, shape_of
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR, busy_provenance, busy_sum

NULL = -(2**62)
"""What stands for a value that is not known: no sum comes near it (`rollup.MAX_SUM`)."""
SEPARATOR = ","
MAX_LENGTH = 64
"""Buckets of an owner in one answer: of 1,000 devices some 20 MB of text."""
_NULL: Any = literal_column(str(NULL), BigInteger)
_ONE: Any = literal_column("1")
Chunks = Iterator[Sequence[str]]
"""Some rows at a time: one text per column."""


def buckets(
    connection: Connection, rollup: str, segments: Segments, names: Sequence[str], owners: Sequence[int] | None = None
) -> Chunks:
    """Yield the columns `names` of the rows of a roll-up in segments: `device`, `host`, `deployment` or `share`.

    `owners` are the ids of whose rows they are; None: of all.
    """
    few = None if owners is None else tuple(sorted(owners))
    for piece in _divided(segments) if few != () else ():
        query = _buckets(connection.dialect.name, rollup, shape_of(piece), tuple(names), few)
        yield from _known(fetch(connection, query, bounds(piece)))


def several_epochs_hours(connection: Connection, start: int, end: int, names: Sequence[str]) -> Chunks:
    """Yield the columns `names` of the whole hours in [start, end) of deployments that had several epochs since."""
    for piece in _divided((Segment(HOUR, start, end),)):
        query = _hours_of_several(connection.dialect.name, tuple(names))
        yield from _known(fetch(connection, query, {**bounds(piece), "since": start}))


def deployment_buckets(
    connection: Connection, seconds: int, start: int, end: int, deployment_id: int, names: Sequence[str]
) -> Chunks:
    """Yield the columns `names` of the buckets in [start, end) of the epochs of one deployment.

    `seconds`: an hour or a minute, which roll-ups hold, or a shorter length, for which ticks are added up.
    """
    segment = Segment(seconds, start, end)
    if seconds in t.deployment_rollup:
        query, values = _buckets_of_one(connection.dialect.name, seconds, tuple(names)), bounds((segment,))
    else:
        query, values = _ticks_of_one(connection.dialect.name, tuple(names)), {**bounds((segment,)), "length": seconds}
    yield from _known(fetch(connection, query, {**values, "deployment": deployment_id}))


def counter_buckets(connection: Connection, segments: Segments, words: Sequence[str]) -> Chunks:
    """Yield (epoch_id, ts, delta of each word) of every bucket in which an epoch counted one of them."""
    for piece in _divided(segments):
        query = _counters(connection.dialect.name, shape_of(piece), tuple(words))
        yield from _known(fetch(connection, query, bounds(piece)))


def deployment_counters(
    connection: Connection, seconds: int, start: int, end: int, deployment_id: int, words: Sequence[str]
) -> Chunks:
    """Yield (epoch_id, ts, delta of each word) of the buckets in [start, end) of one deployment.

    `seconds`: an hour or a minute.
    """
    query = _counters(connection.dialect.name, ((seconds, False),), tuple(words), of_one=True)
    for piece in _divided((Segment(seconds, start, end),)):
        yield from _known(fetch(connection, query, {**bounds(piece), "deployment": deployment_id}))


def deployment_histograms(
    connection: Connection, seconds: int, start: int, end: int, deployment_id: int, metric: str
) -> Rows:
    """Return (ts, bucket_set_id, bucket, count) of one histogram of one deployment in the buckets of [start, end).

    `seconds`: an hour or a minute.
    """
    query = _histograms_of_one(connection.dialect.name, seconds)
    values = {**bounds((Segment(seconds, start, end),)), "deployment": deployment_id, "metric": metric}
    return fetch(connection, query, values)


def histogram_buckets(
    connection: Connection, segments: Segments, metrics: Sequence[str], set_ids: Sequence[int]
) -> Rows:
    """Return (epoch_id, keys, counts) of each epoch with histograms in segments.

    Keys and counts are texts, with a number for each row of the roll-up. A key is `(bucket * (len(set_ids) + 1) + set)
    * (len(metrics) + 1) + metric`, where a metric and a set of buckets are their positions, or the length of the list
    for one that is not in it. Measured: one number takes half of the time that the three take, in SQLite and to parse.
    """
    rows: list[Any] = []
    for segment in segments:
        query = _histogram_buckets(connection.dialect.name, shape_of([segment]), tuple(metrics), tuple(set_ids))
        rows += fetch(connection, query, bounds([segment]))
    return rows


def histogram_sets(connection: Connection) -> Mapping[int, str]:
    """Return the upper bounds of each set of buckets, as stored."""
    return dict(fetch(connection, _HISTOGRAM_SETS))


def counted_metrics(connection: Connection, segments: Segments, metrics: Sequence[str]) -> list[str]:
    """Return the metrics that some epoch counted: most engines count few of them."""
    names = {
        name
        for segment in segments
        for (name,) in fetch(connection, _names(*_of(connection, segment)), bounds([segment]))
    }
    return [metric for metric in metrics if metric in names]


def _of(connection: Connection, segment: Segment) -> tuple[str, Shape]:
    return connection.dialect.name, shape_of([segment])


def _divided(segments: Segments) -> Iterator[tuple[Segment]]:
    for segment in segments:
        length = MAX_LENGTH * segment.seconds
        if segment.end - segment.start <= length:
            yield (segment,)
            continue
        for start in range(segment.start, segment.end, length):
            yield (replace(segment, start=start, end=min(start + length, segment.end)),)


def _known(rows: Sequence[Sequence[str | None]]) -> Iterator[Sequence[str]]:
    """Leave out the one row of an answer in which nothing was found."""
    yield from (row for row in rows if row[0] is not None)  # type: ignore[misc]  # then none of them is


@lru_cache(maxsize=64)
def _buckets(
    dialect: str, rollup: str, shape: Shape, names: tuple[str, ...], owners: tuple[int, ...] | None = None
) -> Any:
    key = {"device": t.device.c.device_id, "deployment": t.epoch.c.epoch_id, "host": t.host.c.host_id}.get(rollup)
    few = None if owners is None or key is None else select(key).where(key.in_(map(_number, owners)))
    (rows,) = parts(dialect, rollup, shape, names, unknown=_NULL, owners=few)
    return _joined(dialect, rows)


@cache
def _hours_of_several(dialect: str, names: tuple[str, ...]) -> Any:
    (rows,) = parts(dialect, "deployment", ((HOUR, False),), names, unknown=_NULL)
    since, epoch = bindparam("since", type_=BigInteger), t.epoch.c
    served = or_(epoch.end_ts.is_(None), epoch.end_ts > since)
    several = select(epoch.deployment_id).where(served).group_by(epoch.deployment_id).having(func.count() > _ONE)
    ids = select(epoch.epoch_id).where(served, epoch.deployment_id.in_(several))
    return _joined(dialect, rows.where(t.deployment_rollup[HOUR].c.epoch_id.in_(ids)))


_EPOCHS_OF_ONE = select(t.epoch.c.epoch_id).where(t.epoch.c.deployment_id == bindparam("deployment", type_=BigInteger))


@cache
def _buckets_of_one(dialect: str, seconds: int, names: tuple[str, ...]) -> Any:
    (rows,) = parts(dialect, "deployment", ((seconds, False),), names, unknown=_NULL, owners=_EPOCHS_OF_ONE)
    return _joined(dialect, rows)


@cache
def _ticks_of_one(dialect: str, names: tuple[str, ...]) -> Any:
    """Return ticks added up as roll-ups do. A tick is named by its end: a bucket holds those of (start, start +
    length]."""
    of, length = t.deployment_sample.c, bindparam("length", type_=BigInteger)
    start, end = (bindparam(name, type_=BigInteger) for name in ("start0", "end0"))
    bucket: Any = (of.ts - _ONE) // length * length
    made: dict[str, Any] = {
        "epoch_id": of.epoch_id,
        "ts": bucket,
        "busy_ms": whole(busy_sum(of)),
        "busy_provenance": func.max(busy_provenance(of)),
    }
    summed = {name: whole(func.sum(of[name])) for name in names if name not in made}
    columns = (func.coalesce(cast({**summed, **made}[name], BigInteger), _NULL).label(name) for name in names)
    rows: Any = select(*columns).where(of.epoch_id.in_(_EPOCHS_OF_ONE), of.ts > start, of.ts <= end)
    return _joined(dialect, rows.group_by(of.epoch_id, bucket))


@cache
def _names(dialect: str, shape: Shape) -> Select[Any]:
    (statement,) = parts(dialect, "engine_counter", shape, ("metric",))
    return statement.distinct()


@cache
def _counters(dialect: str, shape: Shape, words: tuple[str, ...], of_one: bool = False) -> Select[Any]:
    owners = _EPOCHS_OF_ONE if of_one else None
    (statement,) = parts(dialect, "engine_counter", shape, ("epoch_id", "ts", "metric", "delta"), owners=owners)
    rows = statement.subquery().c
    deltas = (whole(func.sum(case((rows.metric == word, rows.delta)))) for word in words)
    labelled = (func.coalesce(delta, _NULL).label(f"delta{n}") for n, delta in enumerate(deltas))
    counted = or_(*(rows.metric == word for word in words))
    return _joined(dialect, select(rows.epoch_id, rows.ts, *labelled).where(counted).group_by(rows.epoch_id, rows.ts))


@cache
def _histograms_of_one(dialect: str, seconds: int) -> Select[Any]:
    names = ("ts", "metric", "bucket_set_id", "bucket", "count")
    (statement,) = parts(dialect, "histogram", ((seconds, False),), names, owners=_EPOCHS_OF_ONE)
    rows = statement.subquery().c
    counted = (rows.ts, rows.bucket_set_id, rows.bucket, rows["count"])
    return select(*counted).where(rows.metric == bindparam("metric", type_=Text))


_HISTOGRAM_SETS = select(t.histogram_set.c.bucket_set_id, t.histogram_set.c.upper_bounds)


@cache
def _histogram_buckets(dialect: str, shape: Shape, metrics: tuple[str, ...], set_ids: tuple[int, ...]) -> Select[Any]:
    keys = ("epoch_id", "metric", "bucket_set_id", "bucket")
    (statement,) = parts(dialect, "histogram", shape, (*keys, "count"))
    rows = statement.subquery().c
    if dialect != "sqlite":  # SQLite takes twice as long to add the counts up as to hand out all of them
        total = whole(func.sum(rows["count"])).label("count")
        rows = select(*(rows[key] for key in keys), total).group_by(*(rows[key] for key in keys)).subquery().c
    key = rows.bucket * _number(len(set_ids) + 1) + _position(rows.bucket_set_id, set_ids)
    key = key * _number(len(metrics) + 1) + _position(rows.metric, metrics)
    return select(rows.epoch_id, *(_as_text(dialect, value) for value in (key, rows["count"]))).group_by(rows.epoch_id)


def _position(value: Any, known: Sequence[str] | Sequence[int]) -> Any:
    """Return the position of a column's value among known ones; their number for another value."""
    # Of the form `CASE value WHEN ...`, with which SQLite looks the value up once: a tenth of a histogram's time.
    positions = {other: _number(n) for n, other in enumerate(known)}
    return case(positions, value=value, else_=_number(len(known))) if positions else _number(0)


def _number(value: int) -> Any:
    return literal_column(str(value), BigInteger)


def _joined(dialect: str, rows: Select[Any]) -> Select[Any]:
    """Return each column as text. All columns are joined in the same order of rows."""
    return select(*(_as_text(dialect, column).label(column.name) for column in rows.subquery().c))


def _as_text(dialect: str, values: Any) -> Any:
    if dialect == "sqlite":  # which joins numbers as they are, by commas
        return func.group_concat(values)
    return func.string_agg(cast(values, Text), literal_column(f"'{SEPARATOR}'"))
