"""Questions about a window that are answered in sums, added up where the telemetry is stored: one statement each.

Statements are built once and bound again: building takes longer than running some of them.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
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

from pertoken.store.query.fast_rows import Rows, fetch, named_tuples
from pertoken.store.query.segments import Segment, Segments, between, column, scaled, whole
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR, MINUTE, THROTTLED, busy_sum
from pertoken.store.schema.words import GATEWAY

ROLLUPS = {
    "device": t.device_rollup,
    "host": t.host_rollup,
    "deployment": t.deployment_rollup,
    "share": t.share_rollup,
    "histogram": t.histogram_rollup,
    "engine_counter": t.engine_counter_rollup,
}
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


def _rows(dialect: str, rollup: str, shape: Shape, names: Sequence[str]) -> Any:
    """Return columns of the buckets of segments of this shape, which are bound by `bounds`."""
    return union_all(*parts(dialect, rollup, shape, names)).subquery()


def parts(
    dialect: str,
    rollup: str,
    shape: Shape,
    names: Sequence[str],
    unknown: Any | None = None,
    owners: Select[Any] | None = None,
) -> list[Select[Any]]:
    """Return a statement for each segment: columns of its buckets, bound by `bounds`, with `unknown` for NULL.

    `owners` selects the ids of whose buckets they are; None: of all.
    """
    statements = []
    for n, (seconds, is_part) in enumerate(shape):
        table = ROLLUPS[rollup][seconds]
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


def _bind(name: str) -> Any:
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


def _summed(connection: Connection, rollup: str, segments: Segments) -> Rows:
    return fetch(connection, _sums(connection.dialect.name, rollup, shape_of(segments)), bounds(segments), named=True)


@cache
def _sums(dialect: str, rollup: str, shape: Shape) -> Select[Any]:
    """Return sums of a roll-up by whose they are. Built once: building takes longer than some answers."""
    table = ROLLUPS[rollup][MINUTE]
    keys = [column.name for column in table.primary_key if column.name != "ts"]
    values = [column.name for column in table.columns if column.name not in (*keys, "ts", *_NEVER_SHOWN)]
    rows = _rows(dialect, rollup, shape, (*keys, *values)).c
    return select(*(rows[key] for key in keys), *(_total(rows, name).label(name) for name in values)).group_by(
        *(rows[key] for key in keys)
    )


def _total(rows: Any, name: str) -> Any:
    """Return the sum of a column; of a provenance the worst."""
    if name == "busy_ms":
        return whole(busy_sum(rows))
    return func.max(rows[name]) if name.endswith("provenance") else _sum(rows[name])


def _sum(column: Any) -> Any:
    return whole(func.sum(column))


def device_totals(connection: Connection, segments: Segments) -> Rows:
    """Return sums over segments for each device."""
    return _summed(connection, "device", segments)


def host_totals(connection: Connection, segments: Segments) -> Rows:
    """Return sums over segments for each host."""
    return _summed(connection, "host", segments)


def deployment_totals(connection: Connection, segments: Segments) -> Rows:
    """Return sums over segments for each epoch; in `whole_ms` and `whole_busy_ms` who held what (`held.held`)."""
    return _summed(connection, "deployment", segments)


def engine_counter_totals(connection: Connection, segments: Segments) -> Rows:
    """Return what each further counter of an engine grew by over segments: (epoch_id, metric, delta)."""
    return _summed(connection, "engine_counter", segments)


def shared_time(connection: Connection, segments: Segments) -> Rows:
    """Return (device_id, epoch_id, held_ns, busy_ns): who held a part of which device for how long in segments."""
    return fetch(connection, _shared(connection.dialect.name, shape_of(segments)), bounds(segments))


@cache
def _shared(dialect: str, shape: Shape) -> Select[Any]:
    rows = _rows(dialect, "share", shape, ("device_id", "epoch_id", "held_ns", "busy_ns")).c
    keys = rows.device_id, rows.epoch_id
    return select(*keys, _sum(rows.held_ns), _sum(rows.busy_ns)).group_by(*keys)


def device_time(connection: Connection, segments: Segments) -> Rows:
    """Return (device_id, duration_ms, observed_ms): how long each device was there in segments, and was observed."""
    return fetch(connection, _durations(connection.dialect.name, shape_of(segments)), bounds(segments))


@cache
def _durations(dialect: str, shape: Shape) -> Select[Any]:
    rows = _rows(dialect, "device", shape, ("device_id", "duration_ms", "observed_ms")).c
    return select(rows.device_id, _sum(rows.duration_ms), _sum(rows.observed_ms)).group_by(rows.device_id)


def tokens(connection: Connection, segments: Segments) -> Rows:
    """Return (epoch_id, prompt and generated tokens together, generated tokens, requests that ended) over segments.

    Tokens are None where one of both kinds is never known.
    """
    return fetch(connection, _tokens(connection.dialect.name, shape_of(segments)), bounds(segments))


@cache
def _tokens(dialect: str, shape: Shape) -> Select[Any]:
    rows = _rows(dialect, "deployment", shape, ("epoch_id", "prompt_tokens", "generated_tokens", "requests_finished")).c
    generated, requests = _sum(rows.generated_tokens), _sum(rows.requests_finished)
    both = _sum(rows.prompt_tokens) + generated
    columns = both.label("tokens"), generated.label("generated"), requests.label("requests")
    return select(rows.epoch_id, *columns).group_by(rows.epoch_id)


def generated_by_slice(connection: Connection, start: int, end: int, slice_s: int) -> Rows:
    """Return (epoch_id, packed start, generated tokens, observed ms and newest row with a token, or 0, of each slice
    of `slice_s` in which tokens are known).

    Slices are counted from the epoch of time.
    """
    query = _slices(connection.dialect.name, HOUR if slice_s % HOUR == 0 else MINUTE)
    return fetch(connection, query, {"start": start, "end": end, "slice_s": slice_s})


@cache
def _slices(dialect: str, seconds: int) -> Select[Any]:
    table = t.deployment_rollup[seconds]
    start, end, slice_s = (bindparam(name, type_=BigInteger) for name in ("start", "end", "slice_s"))
    of = table.c
    sums = func.sum(of.generated_tokens).label("tokens"), func.sum(of.duration_ms).label("ms")
    newest = func.max(case((of.generated_tokens > literal_column("0"), of.ts), else_=literal_column("0")))
    slices = select(of.epoch_id, (of.ts - of.ts % slice_s).label("slice_ts"), *sums, newest.label("token_ts"))
    slices = slices.where(between(dialect, table, start, end)).group_by(of.epoch_id, "slice_ts")
    known = slices.having(func.count(of.generated_tokens) > literal_column("0")).subquery().c
    packed = _packed(dialect, known.slice_ts, known.tokens, known.ms, known.token_ts)
    return select(known.epoch_id, packed).group_by(known.epoch_id)


def histograms(connection: Connection, segments: Segments, metrics: Collection[str] | None = None) -> Rows:
    """Return (epoch_id, metric, upper_bounds, packed count of each bucket) over segments, of all metrics or some."""
    query = _histograms(connection.dialect.name, shape_of(segments), None if metrics is None else tuple(metrics))
    return fetch(connection, query, bounds(segments))


@cache
def _histograms(dialect: str, shape: Shape, metrics: tuple[str, ...] | None) -> Select[Any]:
    keys = ("epoch_id", "metric", "bucket_set_id", "bucket")
    rows = _rows(dialect, "histogram", shape, (*keys, "count")).c
    summed = select(*(rows[key] for key in keys), func.sum(rows["count"]).label("total")).group_by(
        *(rows[key] for key in keys)
    )
    if metrics is not None:
        summed = summed.where(or_(*(rows.metric == metric for metric in metrics)))
    of = summed.subquery().c
    owner = of.epoch_id, of.metric, of.bucket_set_id
    packed = select(*owner, _packed(dialect, of.bucket, of.total).label("counts")).group_by(*owner).subquery().c
    return select(packed.epoch_id, packed.metric, t.histogram_set.c.upper_bounds, packed.counts).join(
        t.histogram_set, t.histogram_set.c.bucket_set_id == packed.bucket_set_id
    )


def _packed(dialect: str, *columns: Any) -> Any:
    """Return numbers of all rows of a group in one text, as most of a fleet's are never looked at: see `unpacked`."""
    row: Any = cast(columns[0], Text)
    for number in columns[1:]:
        row += literal_column("' '", Text) + cast(number, Text)
    return func.group_concat(row) if dialect == "sqlite" else func.string_agg(row, literal_column("','"))


def unpacked(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of each row of a group, in any order."""
    return (tuple(map(int, row.split(" "))) for row in text.split(",") if row)


WEEK_S = 7 * 86_400
MONDAY_S = 4 * 86_400
"""1970-01-05, the first Monday of the epoch."""


def weekly_energy(connection: Connection, device_ids: Collection[int]) -> Rows:
    """Return (device, start of the week, millijoules, milliseconds in which they were measured, sum and number of power
    samples in milliwatts), oldest first.

    Energy is that of the device's counter, else of its power over time. Weeks begin on Monday 00:00 UTC.
    """
    hours = t.device_rollup[HOUR]
    energy = func.coalesce(hours.c.energy_counter_mj, hours.c.energy_integral_mj)
    week = _week(hours.c.ts)
    sampled = func.coalesce(hours.c.power_mw_n, hours.c.samples)  # NULL: every sample had a value
    measured_ms = func.sum(case((energy.is_not(None), hours.c.duration_ms), else_=0))
    return connection.execute(
        select(
            hours.c.device_id,
            week,
            func.sum(energy),
            measured_ms,
            func.sum(hours.c.power_mw_sum),
            func.sum(case((hours.c.power_mw_sum.is_not(None), sampled))),
        )
        .where(hours.c.device_id.in_(list(device_ids)))
        .group_by(hours.c.device_id, week)
        .order_by(hours.c.device_id, week)
    ).all()


_EPOCHS = (
    select(t.epoch.c.epoch_id, t.deployment.c.engine_id)
    .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
    .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
    .where(t.engine.c.found_by == GATEWAY)
    .subquery("gateway_epochs")
)


def gateways(connection: Connection) -> Rows:
    """Return (engine_id, host_id, base_url, kind, life) of every gateway, once for each host and address it is read
    at."""
    of = t.engine.c
    query = select(of.engine_id, of.host_id, of.base_url, of.kind, of.life)
    return named_tuples(connection, query.where(of.found_by == GATEWAY))


def tenant_counters(connection: Connection, segment: Segment) -> Rows:
    """Return (engine_id, ts, metric, delta) of the buckets of a segment in which a gateway counted tokens of
    tenants."""
    of, own = t.engine_counter_rollup[segment.seconds].c, _EPOCHS.c
    query = select(own.engine_id, of.ts, of.metric, func.sum(of.delta).label("delta"))
    query = query.where(of.epoch_id == own.epoch_id, of.ts >= segment.start, of.ts < segment.end)
    return named_tuples(connection, query.group_by(own.engine_id, of.ts, of.metric))


def weekly_plug_energy(connection: Connection, host_ids: Collection[int]) -> Rows:
    """Return (host, start of the week, millijoules at the plug, milliseconds of their measurement), oldest first."""
    hours = t.host_rollup[HOUR]
    week = _week(hours.c.ts)
    return connection.execute(
        select(hours.c.host_id, week, func.sum(hours.c.plug_mj), func.sum(hours.c.plug_ms))
        .where(hours.c.host_id.in_(list(host_ids)), hours.c.plug_ms > 0)
        .group_by(hours.c.host_id, week)
        .order_by(hours.c.host_id, week)
    ).all()


def _week(ts: Any) -> Any:
    return ((ts - MONDAY_S) // WEEK_S * WEEK_S + MONDAY_S).label("week")
