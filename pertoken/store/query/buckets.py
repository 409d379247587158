"""Buckets of a window as columns of text, for whoever makes arrays of them.

An answer is one row: each column as whole numbers joined by commas. Making a Python number of every value takes twice
as long as writing and reading that text (384 hours of 6 columns: 0.45 ms as rows, 0.23 ms as text). A value that is
not known is `NULL`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Label,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from pertoken.store.query.rollups import (
    Query,
    RollupRow,
    Row,
    Segment,
    Segments,
    between,
    column,
    fetch,
    named_tuples,
    scaled,
    whole,
)
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import GATEWAY
from pertoken.store.schema.telemetry import HOUR, MINUTE, THROTTLED, Columns, busy_provenance, busy_sum

_NEVER_SHOWN = frozenset(
    (
        *("revision", "throttled_n", "energy_counter_mj", "energy_integral_mj", "ecc_corrected", "ecc_uncorrected"),
        *("computed_tokens", "kv_use_1e4_sum", "kv_use_1e4_n"),
        *("whole_provenance", *THROTTLED),
    )
)
"""Columns of roll-ups of which no screen shows a sum."""


Shape = tuple[tuple[int, bool], ...]
"""What a statement depends on of each segment: the length of its buckets, and whether it is a part of an hour."""


def shape_of(segments: Segments) -> Shape:
    """Return the shape of segments."""
    return tuple((segment.seconds, segment.part is not None) for segment in segments)


def _rows(dialect: str, rollup: str, shape: Shape, names: Sequence[str]) -> Columns:
    return union_all(*parts(dialect, rollup, shape, names)).subquery().c


def parts(
    dialect: str,
    rollup: str,
    shape: Shape,
    names: Sequence[str],
    unknown: ColumnElement[int] | None = None,
    owners: Query | None = None,
) -> list[Query]:
    """Return a statement for each segment: columns of its buckets, bound by `bounds`, with `unknown` for NULL.

    `owners` selects the ids of whose buckets they are; None: of all.
    """
    statements: list[Query] = []
    for n, (seconds, is_part) in enumerate(shape):
        table = t.ROLLUPS[rollup][seconds]
        inside = between(dialect, table, _bind(f"start{n}"), _bind(f"end{n}"), owners)
        columns, keys = [column(table, name) for name in names], table.primary_key.columns.keys()
        if is_part:
            first, last = _bind(f"first{n}"), _bind(f"last{n}")
            columns = [
                value if name in keys or name.endswith("provenance") else scaled(value, first, last)
                for name, value in zip(names, columns, strict=True)
            ]
        if unknown is not None:
            columns = [
                func.coalesce(value, unknown) if table.c[name].nullable else value
                for name, value in zip(names, columns, strict=True)
            ]
        labelled = (value.label(name) for name, value in zip(names, columns, strict=True))
        statements.append(select(*labelled).where(inside))
    return statements


def _bind(name: str) -> ColumnElement[int]:
    return bindparam(name, type_=BigInteger)


def bounds(segments: Segments) -> dict[str, int]:
    """Return the values to which statements of `parts` are bound."""
    return {name: value for n, segment in enumerate(segments) for name, value in _bounds(n, segment)}


def _bounds(n: int, segment: Segment) -> Iterator[tuple[str, int]]:
    yield f"start{n}", segment.start
    yield f"end{n}", segment.end
    if segment.part is not None:
        yield f"first{n}", segment.part[0]
        yield f"last{n}", segment.part[1]


def _summed(connection: Connection, rollup: str, segments: Segments, row: type[Row]) -> Sequence[Row]:
    return fetch(connection, _sums(connection.dialect.name, rollup, shape_of(segments)), bounds(segments), row)


@cache
def _sums(dialect: str, rollup: str, shape: Shape, names: tuple[str, ...] = ()) -> Query:
    """Return sums of columns (by default of all that are shown) by owner.

    Built once: building takes longer than some answers.
    """
    table = t.ROLLUPS[rollup][MINUTE]
    keys = [column.name for column in table.primary_key if column.name != "ts"]
    shown = (column.name for column in table.columns if column.name not in (*keys, "ts", *_NEVER_SHOWN))
    values = names or tuple(shown)
    rows = _rows(dialect, rollup, shape, (*keys, *values))
    return select(*(rows[key] for key in keys), *(_total(rows, name).label(name) for name in values)).group_by(
        *(rows[key] for key in keys)
    )


def _total(rows: Columns, name: str) -> ColumnElement[int]:
    """Return the sum of a column; of a provenance the worst."""
    if name == "busy_ms":
        return whole(busy_sum(rows))
    return func.max(rows[name]) if name.endswith("provenance") else _sum(rows[name])


def _sum(column: ColumnElement[int]) -> ColumnElement[int]:
    return whole(func.sum(column))


def device_totals(connection: Connection, segments: Segments) -> Sequence[RollupRow]:
    """Return sums over segments for each device."""
    return _summed(connection, "device", segments, RollupRow)


def host_totals(connection: Connection, segments: Segments) -> Sequence[RollupRow]:
    """Return sums over segments for each host."""
    return _summed(connection, "host", segments, RollupRow)


def deployment_totals(connection: Connection, segments: Segments) -> Sequence[RollupRow]:
    """Return sums over segments for each epoch; in `whole_ms` and `whole_busy_ms` who held what (`held.held`)."""
    return _summed(connection, "deployment", segments, RollupRow)


class CounterTotal(NamedTuple):
    """Increase of a further counter of an engine."""

    epoch_id: int
    metric: str
    delta: int


def engine_counter_totals(connection: Connection, segments: Segments) -> Sequence[CounterTotal]:
    """Return what each further counter of an engine grew by over segments: (epoch_id, metric, delta)."""
    return _summed(connection, "engine_counter", segments, CounterTotal)


def shared_time(connection: Connection, segments: Segments) -> Sequence[tuple[int, int, int, int]]:
    """Return (device_id, epoch_id, held_ns, busy_ns): who held a part of which device for how long in segments."""
    query = _sums(connection.dialect.name, "share", shape_of(segments), ("held_ns", "busy_ns"))
    return fetch(connection, query, bounds(segments))


def device_time(connection: Connection, segments: Segments) -> Sequence[tuple[int, int, int]]:
    """Return (device_id, duration_ms, observed_ms): how long each device was there in segments, and was observed."""
    query = _sums(connection.dialect.name, "device", shape_of(segments), ("duration_ms", "observed_ms"))
    return fetch(connection, query, bounds(segments))


def tokens(connection: Connection, segments: Segments) -> Sequence[tuple[int, int | None, int | None, int]]:
    """Return (epoch_id, prompt and generated tokens together, generated tokens, requests that ended) over segments.

    Tokens are None where one of both kinds is never known.
    """
    return fetch(connection, _tokens(connection.dialect.name, shape_of(segments)), bounds(segments))


@cache
def _tokens(dialect: str, shape: Shape) -> Query:
    rows = _rows(dialect, "deployment", shape, ("epoch_id", "prompt_tokens", "generated_tokens", "requests_finished"))
    generated, requests = _sum(rows.generated_tokens), _sum(rows.requests_finished)
    both = _sum(rows.prompt_tokens) + generated
    columns = both.label("tokens"), generated.label("generated"), requests.label("requests")
    return select(rows.epoch_id, *columns).group_by(rows.epoch_id)


def generated_by_slice(connection: Connection, start: int, end: int, slice_s: int) -> Sequence[tuple[int, str]]:
    """Return (epoch_id, packed start, generated tokens, observed ms and newest row with a token, or 0, of each slice
    of `slice_s` in which tokens are known).

    Slices are counted from the epoch of time.
    """
    query = _slices(connection.dialect.name, HOUR if slice_s % HOUR == 0 else MINUTE)
    return fetch(connection, query, {"start": start, "end": end, "slice_s": slice_s})


@cache
def _slices(dialect: str, seconds: int) -> Query:
    table = t.deployment_rollup[seconds]
    start, end, slice_s = (bindparam(name, type_=BigInteger) for name in ("start", "end", "slice_s"))
    served = table.c
    sums = func.sum(served.generated_tokens).label("tokens"), func.sum(served.duration_ms).label("ms")
    zero: ColumnElement[int] = literal_column("0")
    newest = func.max(case((served.generated_tokens > zero, served.ts), else_=zero)).label("token_ts")
    slices = select(served.epoch_id, (served.ts - served.ts % slice_s).label("slice_ts"), *sums, newest)
    slices = slices.where(between(dialect, table, start, end)).group_by(served.epoch_id, "slice_ts")
    counted = slices.having(func.count(served.generated_tokens) > zero).subquery().c
    packed = _packed(dialect, counted.slice_ts, counted.tokens, counted.ms, counted.token_ts)
    return select(counted.epoch_id, packed).group_by(counted.epoch_id)


def histograms(
    connection: Connection, segments: Segments, metrics: Collection[str] | None = None
) -> Sequence[tuple[int, str, str, str]]:
    """Return (epoch_id, metric, upper_bounds, packed count of each bucket) over segments, of all metrics or some."""
    query = _histograms(connection.dialect.name, shape_of(segments), None if metrics is None else tuple(metrics))
    return fetch(connection, query, bounds(segments))


@cache
def _histograms(dialect: str, shape: Shape, metrics: tuple[str, ...] | None) -> Query:
    keys = ("epoch_id", "metric", "bucket_set_id", "bucket")
    rows = _rows(dialect, "histogram", shape, (*keys, "count"))
    summed = select(*(rows[key] for key in keys), func.sum(rows["count"]).label("total")).group_by(
        *(rows[key] for key in keys)
    )
    if metrics is not None:
        summed = summed.where(or_(*(rows.metric == metric for metric in metrics)))
    counts = summed.subquery().c
    owner = counts.epoch_id, counts.metric, counts.bucket_set_id
    packed = select(*owner, _packed(dialect, counts.bucket, counts.total).label("packed")).group_by(*owner).subquery().c
    return select(packed.epoch_id, packed.metric, t.histogram_set.c.upper_bounds, packed.packed).join(
        t.histogram_set, t.histogram_set.c.bucket_set_id == packed.bucket_set_id
    )


def _packed(dialect: str, *columns: ColumnElement[int]) -> ColumnElement[str]:
    """Return numbers of all rows of a group in one text, as most of a fleet's are never looked at: see `unpacked`."""
    row: ColumnElement[str] = cast(columns[0], Text)
    for number in columns[1:]:
        row += literal_column("' '", Text) + cast(number, Text)
    return func.group_concat(row) if dialect == "sqlite" else func.string_agg(row, literal_column("','"))


def unpacked(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of each row of a group, in any order."""
    return (tuple(map(int, row.split(" "))) for row in text.split(",") if row)


WEEK_S = 7 * 86_400
MONDAY_S = 4 * 86_400
"""1970-01-05, the first Monday of the epoch."""


class EnergyWeek(NamedTuple):
    """Energy of a device in one week, which begins on Monday 00:00 UTC."""

    device_id: int
    start_ts: int
    energy_mj: int
    """Of the device's counter, else of its power over time."""
    measured_ms: int
    """Time in which it was measured."""
    power_mw_sum: int
    power_samples: int


def weekly_energy(connection: Connection, device_ids: Collection[int]) -> list[EnergyWeek]:
    """Return the energy of devices by week, oldest first."""
    hours = t.device_rollup[HOUR]
    energy = func.coalesce(hours.c.energy_counter_mj, hours.c.energy_integral_mj)
    week = _week(hours.c.ts)
    sampled = func.coalesce(hours.c.power_mw_n, hours.c.samples)  # NULL: every sample had a value
    sums = (
        energy,
        case((energy.is_not(None), hours.c.duration_ms)),
        hours.c.power_mw_sum,
        case((hours.c.power_mw_sum.is_not(None), sampled)),
    )
    query = (
        select(
            hours.c.device_id, week, *(func.coalesce(_sum(values), 0).label(f"sum{n}") for n, values in enumerate(sums))
        )
        .where(hours.c.device_id.in_(list(device_ids)))
        .group_by(hours.c.device_id, week)
        .order_by(hours.c.device_id, week)
    )
    return named_tuples(connection, query, EnergyWeek)


_EPOCHS = (
    select(t.epoch.c.epoch_id, t.deployment.c.engine_id)
    .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
    .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
    .where(t.engine.c.found_by == GATEWAY)
    .subquery("gateway_epochs")
)


class Gateway(NamedTuple):
    """An address of a gateway, as one host reads it."""

    engine_id: int
    host_id: int
    base_url: str
    kind: str
    life: int | None


def gateways(connection: Connection) -> list[Gateway]:
    """Return (engine_id, host_id, base_url, kind, life) of every gateway, once for each host and address it is read
    at."""
    engine = t.engine.c
    query = select(engine.engine_id, engine.host_id, engine.base_url, engine.kind, engine.life)
    return named_tuples(connection, query.where(engine.found_by == GATEWAY), Gateway)


class TenantCounter(NamedTuple):
    """Increase of a gateway's counter in one bucket."""

    engine_id: int
    ts: int
    metric: str
    delta: int


def tenant_counters(connection: Connection, segment: Segment) -> list[TenantCounter]:
    """Return (engine_id, ts, metric, delta) of the buckets of a segment in which a gateway counted tokens of
    tenants."""
    counters, epochs = t.engine_counter_rollup[segment.seconds].c, _EPOCHS.c
    query = select(epochs.engine_id, counters.ts, counters.metric, func.sum(counters.delta).label("delta"))
    query = query.where(counters.epoch_id == epochs.epoch_id, counters.ts >= segment.start, counters.ts < segment.end)
    return named_tuples(connection, query.group_by(epochs.engine_id, counters.ts, counters.metric), TenantCounter)


class PlugWeek(NamedTuple):
    """Energy of a server at its plug in one week, which begins on Monday 00:00 UTC."""

    host_id: int
    start_ts: int
    energy_mj: int
    measured_ms: int


def weekly_plug_energy(connection: Connection, host_ids: Collection[int]) -> list[PlugWeek]:
    """Return the energy of servers at the plug in the weeks of their measurement, oldest first."""
    hours = t.host_rollup[HOUR]
    week = _week(hours.c.ts)
    query = (
        select(hours.c.host_id, week, _sum(hours.c.plug_mj).label("energy"), _sum(hours.c.plug_ms).label("measured"))
        .where(hours.c.host_id.in_(list(host_ids)), hours.c.plug_ms > 0, hours.c.plug_mj.is_not(None))
        .group_by(hours.c.host_id, week)
        .order_by(hours.c.host_id, week)
    )
    return named_tuples(connection, query, PlugWeek)


def _week(ts: ColumnElement[int]) -> Label[int]:
    return ((ts - MONDAY_S) // WEEK_S * WEEK_S + MONDAY_S).label("week")


NULL = -(2**62)
"""What stands for a value that is not known: no sum comes near it (`rollup.MAX_SUM`)."""
SEPARATOR = ","
MAX_LENGTH = 64
"""Buckets of an owner in one answer: of 1,000 devices some 20 MB of text."""
_NULL: ColumnElement[int] = literal_column(str(NULL), BigInteger)
_ONE: ColumnElement[int] = literal_column("1")
Chunks = Iterator[Sequence[str]]
"""Some rows at a time: one text per column."""


def buckets(
    connection: Connection, rollup: str, segments: Segments, names: Sequence[str], owners: Sequence[int] | None = None
) -> Chunks:
    """Yield the columns `names` of the rows of a roll-up in segments: `device`, `host`, `deployment` or `share`.

    `owners` are the ids of whose rows they are; None: of all.
    """
    few = None if owners is None else tuple(sorted(owners))
    for short_segments in _divided(segments) if few != () else ():
        query = _buckets(connection.dialect.name, rollup, shape_of(short_segments), tuple(names), few)
        yield from _known(fetch(connection, query, bounds(short_segments)))


def several_epochs_hours(connection: Connection, start: int, end: int, names: Sequence[str]) -> Chunks:
    """Yield the columns `names` of the whole hours in [start, end) of deployments that had several epochs since."""
    for short_segments in _divided((Segment(HOUR, start, end),)):
        query = _hours_of_several(connection.dialect.name, tuple(names))
        yield from _known(fetch(connection, query, {**bounds(short_segments), "since": start}))


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
    for short_segments in _divided(segments):
        query = _counters(connection.dialect.name, shape_of(short_segments), tuple(words))
        yield from _known(fetch(connection, query, bounds(short_segments)))


def deployment_counters(
    connection: Connection, seconds: int, start: int, end: int, deployment_id: int, words: Sequence[str]
) -> Chunks:
    """Yield (epoch_id, ts, delta of each word) of the buckets in [start, end) of one deployment.

    `seconds`: an hour or a minute.
    """
    query = _counters(connection.dialect.name, ((seconds, False),), tuple(words), of_one=True)
    for short_segments in _divided((Segment(seconds, start, end),)):
        yield from _known(fetch(connection, query, {**bounds(short_segments), "deployment": deployment_id}))


def deployment_histograms(
    connection: Connection, seconds: int, start: int, end: int, deployment_id: int, metric: str
) -> Sequence[tuple[int, int, int, int]]:
    """Return (ts, bucket_set_id, bucket, count) of one histogram of one deployment in the buckets of [start, end).

    `seconds`: an hour or a minute.
    """
    query = _histograms_of_one(connection.dialect.name, seconds)
    values = {**bounds((Segment(seconds, start, end),)), "deployment": deployment_id, "metric": metric}
    return fetch(connection, query, values)


def histogram_buckets(
    connection: Connection, segments: Segments, metrics: Sequence[str], set_ids: Sequence[int]
) -> list[tuple[int, str, str]]:
    """Return (epoch_id, keys, counts) of each epoch with histograms in segments.

    Keys and counts are texts, with a number for each row of the roll-up. A key is `(bucket * (len(set_ids) + 1) + set)
    * (len(metrics) + 1) + metric`, where a metric and a set of buckets are their positions, or the length of the list
    for one that is not in it. Measured: one number takes half of the time that the three take, in SQLite and to parse.
    """
    rows: list[tuple[int, str, str]] = []
    for segment in segments:
        query = _histogram_buckets(connection.dialect.name, shape_of([segment]), tuple(metrics), tuple(set_ids))
        rows += fetch(connection, query, bounds([segment]))
    return rows


def histogram_sets(connection: Connection) -> Mapping[int, str]:
    """Return the upper bounds of each set of buckets, as stored."""
    sets: Sequence[tuple[int, str]] = fetch(connection, _HISTOGRAM_SETS)
    return dict(sets)


def counted_metrics(connection: Connection, segments: Segments, metrics: Sequence[str]) -> list[str]:
    """Return the metrics that some epoch counted: most engines count few of them."""
    names: set[str] = set()
    for segment in segments:
        rows: Sequence[tuple[str]] = fetch(connection, _names(*_of(connection, segment)), bounds([segment]))
        names.update(name for (name,) in rows)
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


def _known(rows: Sequence[tuple[str | None, ...]]) -> Iterator[Sequence[str]]:
    """Leave out the one row of an answer in which nothing was found."""
    yield from (row for row in rows if row[0] is not None)  # type: ignore[misc]  # then none of them is


@lru_cache(maxsize=64)
def _buckets(
    dialect: str, rollup: str, shape: Shape, names: tuple[str, ...], owners: tuple[int, ...] | None = None
) -> Query:
    key = {"device": t.device.c.device_id, "deployment": t.epoch.c.epoch_id, "host": t.host.c.host_id}.get(rollup)
    few = None if owners is None or key is None else select(key).where(key.in_(map(_number, owners)))
    (rows,) = parts(dialect, rollup, shape, names, unknown=_NULL, owners=few)
    return _joined(dialect, rows)


@cache
def _hours_of_several(dialect: str, names: tuple[str, ...]) -> Query:
    (rows,) = parts(dialect, "deployment", ((HOUR, False),), names, unknown=_NULL)
    since, epoch = bindparam("since", type_=BigInteger), t.epoch.c
    served = or_(epoch.end_ts.is_(None), epoch.end_ts > since)
    several = select(epoch.deployment_id).where(served).group_by(epoch.deployment_id).having(func.count() > _ONE)
    ids = select(epoch.epoch_id).where(served, epoch.deployment_id.in_(several))
    return _joined(dialect, rows.where(t.deployment_rollup[HOUR].c.epoch_id.in_(ids)))


_EPOCHS_OF_ONE = select(t.epoch.c.epoch_id).where(t.epoch.c.deployment_id == bindparam("deployment", type_=BigInteger))


@cache
def _buckets_of_one(dialect: str, seconds: int, names: tuple[str, ...]) -> Query:
    (rows,) = parts(dialect, "deployment", ((seconds, False),), names, unknown=_NULL, owners=_EPOCHS_OF_ONE)
    return _joined(dialect, rows)


@cache
def _ticks_of_one(dialect: str, names: tuple[str, ...]) -> Query:
    """Return ticks added up as roll-ups do. A tick is named by its end: a bucket holds those of (start, start +
    length]."""
    ticks, length = t.deployment_sample.c, bindparam("length", type_=BigInteger)
    start, end = (bindparam(name, type_=BigInteger) for name in ("start0", "end0"))
    bucket: ColumnElement[int] = (ticks.ts - _ONE) // length * length
    made: dict[str, ColumnElement[int]] = {
        "epoch_id": ticks.epoch_id,
        "ts": bucket,
        "busy_ms": whole(busy_sum(ticks)),
        "busy_provenance": func.max(busy_provenance(ticks)),
    }
    summed = {name: whole(func.sum(ticks[name])) for name in names if name not in made}
    columns = (func.coalesce(cast({**summed, **made}[name], BigInteger), _NULL).label(name) for name in names)
    rows: Query = select(*columns).where(ticks.epoch_id.in_(_EPOCHS_OF_ONE), ticks.ts > start, ticks.ts <= end)
    return _joined(dialect, rows.group_by(ticks.epoch_id, bucket))


@cache
def _names(dialect: str, shape: Shape) -> Query:
    (statement,) = parts(dialect, "engine_counter", shape, ("metric",))
    return statement.distinct()


@cache
def _counters(dialect: str, shape: Shape, words: tuple[str, ...], of_one: bool = False) -> Query:
    owners = _EPOCHS_OF_ONE if of_one else None
    (statement,) = parts(dialect, "engine_counter", shape, ("epoch_id", "ts", "metric", "delta"), owners=owners)
    rows = statement.subquery().c
    deltas = (whole(func.sum(case((rows.metric == word, rows.delta)))) for word in words)
    labelled = (func.coalesce(delta, _NULL).label(f"delta{n}") for n, delta in enumerate(deltas))
    counted = or_(*(rows.metric == word for word in words))
    return _joined(dialect, select(rows.epoch_id, rows.ts, *labelled).where(counted).group_by(rows.epoch_id, rows.ts))


@cache
def _histograms_of_one(dialect: str, seconds: int) -> Query:
    names = ("ts", "metric", "bucket_set_id", "bucket", "count")
    (statement,) = parts(dialect, "histogram", ((seconds, False),), names, owners=_EPOCHS_OF_ONE)
    rows = statement.subquery().c
    counted = (rows.ts, rows.bucket_set_id, rows.bucket, rows["count"])
    return select(*counted).where(rows.metric == bindparam("metric", type_=Text))


_HISTOGRAM_SETS = select(t.histogram_set.c.bucket_set_id, t.histogram_set.c.upper_bounds)


@cache
def _histogram_buckets(dialect: str, shape: Shape, metrics: tuple[str, ...], set_ids: tuple[int, ...]) -> Query:
    keys = ("epoch_id", "metric", "bucket_set_id", "bucket")
    (statement,) = parts(dialect, "histogram", shape, (*keys, "count"))
    rows = statement.subquery().c
    if dialect != "sqlite":  # SQLite takes twice as long to add the counts up as to hand out all of them
        total = whole(func.sum(rows["count"])).label("count")
        rows = select(*(rows[key] for key in keys), total).group_by(*(rows[key] for key in keys)).subquery().c
    key = rows.bucket * _number(len(set_ids) + 1) + _position(rows.bucket_set_id, set_ids)
    key = key * _number(len(metrics) + 1) + _position(rows.metric, metrics)
    return select(rows.epoch_id, *(_as_text(dialect, value) for value in (key, rows["count"]))).group_by(rows.epoch_id)


def _position(
    value: ColumnElement[int] | ColumnElement[str], keys: Sequence[str] | Sequence[int]
) -> ColumnElement[int]:
    """Return the position of a column's value among keys; their number for another value."""
    # Of the form `CASE value WHEN ...`, with which SQLite looks the value up once: a tenth of a histogram's time.
    positions = {key: _number(n) for n, key in enumerate(keys)}
    return case(positions, value=value, else_=_number(len(keys))) if positions else _number(0)


def _number(value: int) -> ColumnElement[int]:
    return literal_column(str(value), BigInteger)


def _joined(dialect: str, rows: Query) -> Query:
    """Return each column as text. All columns are joined in the same order of rows."""
    return select(*(_as_text(dialect, column).label(column.name) for column in rows.subquery().c))


def _as_text(dialect: str, values: ColumnElement[int]) -> ColumnElement[str]:
    if dialect == "sqlite":  # which joins numbers as they are, by commas
        return func.group_concat(values)
    return func.string_agg(cast(values, Text), literal_column(f"'{SEPARATOR}'"))
