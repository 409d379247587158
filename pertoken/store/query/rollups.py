"""Rows of roll-ups, one statement each, and answers as plain tuples, which are made faster than SQLAlchemy's rows."""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    Select,
    SelectBase,
    Table,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.exc import DatabaseError

from pertoken.store.connect.sqlite import driver
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import OTHER
from pertoken.store.schema.telemetry import HOUR, MINUTE, busy_provenance
from pertoken.units import SHARE

Row = TypeVar("Row", bound="tuple[object, ...]")
Query = Select[*tuple[object, ...]]
Values = Mapping[str, object]
Names = tuple[str, ...]
_NOTHING: Values = {}


def named_tuples(connection: Connection, query: Executable, row: type[Row]) -> list[Row]:
    """Return all rows as tuples of this type, whose fields are the query's columns."""
    result = connection.execute(query)
    make = _maker(row, tuple(result.keys()))
    assert result.cursor is not None
    rows = list(map(make, result.cursor.fetchall()))
    result.close()
    return rows


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Within it `fetch` does not wait for a server, which goes on with what it was asked while Python works.

    Whoever looks at an answer waits for all that was asked until then: look late, and at what was asked first before
    asking for more.
    """
    if connection.dialect.name == "sqlite":
        yield
        return
    import psycopg

    if not psycopg.Pipeline.is_supported():
        yield
        return
    with _explained(connection), connection.connection.driver_connection.pipeline():  # type: ignore[union-attr]
        yield


def fetch(
    connection: Connection, query: SelectBase, values: Values = _NOTHING, row: type[Row] | None = None
) -> Sequence[Row]:
    """Return rows of a statement that is kept, with its text: SQLAlchemy names its schemas again each time, which takes
    longer than an answer of a host. They are tuples of the type `row`, or plain ones, whose types the caller states."""
    text, names, constants, columns = _text(connection.dialect, query)
    make = None if row is None else _maker(row, columns)
    if connection.dialect.name == "sqlite":
        rows = driver(connection).execute(text, [values.get(name, constants.get(name)) for name in names]).fetchall()
        return rows if make is None else list(map(make, rows))
    lazy_rows = LazyRows(connection, text, {**constants, **values}, make)
    return lazy_rows if connection.connection.driver_connection.pgconn.pipeline_status else lazy_rows[:]  # type: ignore[union-attr]


class LazyRows(Sequence[Row], Generic[Row]):
    """Rows of a server, taken when somebody looks at them."""

    def __init__(
        self, connection: Connection, text: str, values: Values, make: Callable[[Sequence[object]], Row] | None
    ) -> None:
        self._connection, self._make = connection, make
        self._cursor = connection.connection.cursor()
        with _explained(connection):
            self._cursor.execute(text, values)

    @cached_property
    def _rows(self) -> list[Row]:
        with _explained(self._connection):
            rows = list(self._cursor.fetchall())
            self._cursor.close()
        return rows if self._make is None else list(map(self._make, rows))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)


@contextmanager
def _explained(connection: Connection) -> Iterator[None]:
    """The driver's own errors as SQLAlchemy has them, which `store.connect.open.explained` knows."""
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise DatabaseError(None, None, error, hide_parameters=True) from error


@lru_cache(maxsize=128)
def _text(dialect: Dialect, query: SelectBase) -> tuple[str, Names, Values, Names]:
    """Return the text of a statement, the names of what it binds in their order, values bound already, its columns."""
    compiled = query.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ()), compiled.params, tuple(query.selected_columns.keys())


@cache
def _maker(row: type[Row], names: Names) -> Callable[[Sequence[object]], Row]:
    """Return what makes a named tuple of a row: without a call into Python, unlike `_make`, which takes twice as
    long. A type without fields of its own stands for the columns that the query has."""
    fields = getattr(row, "_fields", None)
    if fields is None:
        return partial(tuple.__new__, namedtuple(row.__name__, names, rename=True))  # type: ignore[return-value]
    if len(fields) != len(names):
        raise TypeError(f"{row.__name__} has other fields than its query: {', '.join(names)}")
    return partial(tuple.__new__, row)


MAX_SUM = 2**61
"""Largest sum; four of them still fit into 64 bits."""


class RollupRow(tuple[int | None, ...]):
    """Row or sums of a roll-up, whose columns depend on the metrics that pertoken knows, with the id of its owner."""

    if TYPE_CHECKING:
        device_id: int
        epoch_id: int
        host_id: int
        ts: int
        duration_ms: int
        observed_ms: int

        def __getattr__(self, name: str) -> int | None: ...
        def _asdict(self) -> dict[str, int | None]: ...


class AllocatedBucket(NamedTuple):
    """Device time that an epoch held in one bucket."""

    device_id: int
    ts: int
    epoch_id: int
    held_ns: int
    busy_ns: int
    provenance: int


class HistogramSlice(NamedTuple):
    """Count of one bucket of a histogram in one slice of time."""

    slice_ts: int
    metric: str
    upper_bounds: str
    bucket: int
    total: int


def whole(total: ColumnElement[int]) -> ColumnElement[int]:
    """Return a sum as 64 bits: PostgreSQL sums them as numeric, which would come back as Decimal.

    A larger one, of values that nothing can have, is `MAX_SUM`: one host's rows end no statement over all hosts.
    """
    limit: ColumnElement[int] = literal_column(str(MAX_SUM))
    return cast(case((total > limit, limit), else_=total), BigInteger)


@dataclass(frozen=True, slots=True)
class Segment:
    """Buckets of one length with start <= ts < end."""

    seconds: int
    start: int
    end: int
    part: tuple[int, int] | None = None
    """Minutes [first, last) of its one hour that the segment stands for, where the hour's own minutes were deleted.

    The hour's sums are scaled to them by time (`scaled`), so that parts which cover the hour add up to its sums.
    """

    @property
    def begin(self) -> int:
        """Start of the time it stands for."""
        return self.start if self.part is None else self.start + self.part[0] * MINUTE

    @property
    def until(self) -> int:
        """End of the time it stands for."""
        return self.end if self.part is None else self.start + self.part[1] * MINUTE


Segments = Sequence[Segment]
"""Buckets that are read and summed together."""


def segments(
    start: int, end: int, *, under_way: bool = False, without_minutes: Collection[int] = ()
) -> tuple[Segment, ...]:
    """Cover [start, end) with whole hours where possible and minutes elsewhere, without overlap.

    `under_way`: the hour that `end` lies in is kept up to date and holds nothing later, so that it is read whole.
    `without_minutes`: starts of hours whose minutes were deleted; they are read as parts of their hour.
    """
    start, end = _outwards(start, end)
    first = min(end, -(-start // HOUR) * HOUR)
    last = -(-end // HOUR) * HOUR if under_way and end > first else max(first, end // HOUR * HOUR)
    covering = _minutes(start, first, without_minutes), Segment(HOUR, first, last), _minutes(last, end, without_minutes)
    return tuple(segment for segment in covering if segment.start < segment.end)


def _minutes(start: int, end: int, without_minutes: Collection[int]) -> Segment:
    """Return minutes [start, end) of one hour, or the part of the hour that stands for them."""
    hour = start // HOUR * HOUR
    if start < end and hour in without_minutes:
        return Segment(HOUR, hour, hour + HOUR, ((start - hour) // MINUTE, (end - hour) // MINUTE))
    return Segment(MINUTE, start, end)


def intervals(
    start: int,
    end: int,
    changes: Iterable[int],
    *,
    under_way: bool = False,
    without_minutes: Collection[int] = (),
) -> tuple[Segments, ...]:
    """Return [start, end) split at instants at which something changed (a price), each interval covered by `segments`.

    A change counts from the minute that begins after it.
    """
    bounds = pairwise(_cuts(start, end, changes))
    end = _outwards(start, end)[1]
    return tuple(segments(a, b, under_way=under_way and b == end, without_minutes=without_minutes) for a, b in bounds)


def divided_hours(start: int, end: int, changes: Iterable[int] = (), *, under_way: bool = False) -> list[int]:
    """Return starts of the hours that `intervals` reads by the minute: one of them begins or ends within them."""
    cuts = _cuts(start, end, changes)
    return sorted({cut // HOUR * HOUR for cut in (cuts[:-1] if under_way else cuts) if cut % HOUR})


def _cuts(start: int, end: int, changes: Iterable[int]) -> list[int]:
    start, end = _outwards(start, end)
    return sorted({start, end} | {cut for ts in changes if start < (cut := -(-ts // MINUTE) * MINUTE) < end})


def _outwards(start: int, end: int) -> tuple[int, int]:
    """Return the whole minutes that cover [start, end)."""
    return start // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE


Number = TypeVar("Number", int, ColumnElement[int])


def scaled(value: Number, first: Number, last: Number) -> Number:
    """Return the part of an hour's sum (a number, or an SQL column) that minutes [first, last) of it stand for.

    Parts that cover the hour add up to the sum exactly.
    """
    minutes = HOUR // MINUTE
    return value * last // minutes - value * first // minutes


def column(table: Table, name: str) -> ColumnElement[int]:
    """Return a column of a roll-up, with what NULL stands for in it: in the count of a gauge's samples all samples, in
    `busy_provenance` what `rollup.busy_provenance` explains."""
    if name == "busy_provenance":
        return busy_provenance(table.c).label(name)
    stored = table.c[name]
    counted = name.endswith("_n") and stored.nullable
    return func.coalesce(stored, table.c.samples).label(name) if counted else stored


Instant = int | ColumnElement[int]


def between(
    dialect: str, table: Table, start: Instant, end: Instant, owners: Query | None = None
) -> ColumnElement[bool]:
    """Return rows with start <= ts < end, of some `owners` only where they are given."""
    inside = and_(table.c.ts >= start, table.c.ts < end)
    owner = next(iter(table.primary_key))
    if owners is not None:
        return and_(owner.in_(owners), inside)
    if dialect != "sqlite":
        return inside
    # SQLite has no index but the key, which begins with the owner: by owner it reads the window and not all of history.
    everyone = {"device_id": t.device, "epoch_id": t.epoch, "host_id": t.host}[owner.name]
    return and_(owner.in_(select(everyone.c[owner.name])), inside)


def allocated_ns(
    shared: Iterable[tuple[int, int, int, int]],
    totals: Iterable[RollupRow],
    devices: Mapping[int, Sequence[int]],
    epochs: Container[int],
) -> dict[int, dict[int, tuple[int, int]]]:
    """Return device_id -> epoch_id -> (held_ns, busy_ns) over the same time: of rows of `sums.shared_time`, and of
    `sums.deployment_totals` what each epoch held whole of its devices.

    Epochs without a usable row, which are not among `epochs`, are foreign work.
    """
    by_device: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    held_whole = (
        (device_id, row.epoch_id, row.whole_ms * SHARE, (row.whole_busy_ms or 0) * SHARE)
        for row in totals
        if row.whole_ms is not None
        for device_id in devices.get(row.epoch_id, ())
    )
    for device_id, epoch_id, held_ns, busy_ns in chain(held_whole, shared):
        owner = epoch_id if epoch_id in epochs else OTHER
        held_sum, busy_sum = by_device[device_id].get(owner, (0, 0))
        by_device[device_id][owner] = held_sum + held_ns, busy_sum + busy_ns
    return by_device


def _within(connection: Connection, table: Table, segment: Segment) -> ColumnElement[bool]:
    return between(connection.dialect.name, table, segment.start, segment.end)


def share_buckets(connection: Connection, segment: Segment, epoch_ids: Collection[int]) -> list[AllocatedBucket]:
    """Return which devices these epochs held in the buckets of a segment.

    A device may come twice for one epoch and bucket, if it was held whole for a part of it: its times add up.
    """
    share_table, deployment = t.share_rollup[segment.seconds], t.deployment_rollup[segment.seconds]
    part, served, device = share_table.c, deployment.c, t.epoch_device.c
    unit = cast(literal(SHARE), BigInteger)
    shared = select(part.device_id, part.ts, part.epoch_id, part.held_ns, part.busy_ns, part.provenance)
    held_whole = select(
        device.device_id,
        served.ts,
        served.epoch_id,
        (served.whole_ms * unit).label("held_ns"),
        (served.whole_busy_ms * unit).label("busy_ns"),
        served.whole_provenance,
    ).join_from(deployment, t.epoch_device, device.epoch_id == served.epoch_id)
    query = union_all(
        shared.where(_within(connection, share_table, segment), part.epoch_id.in_(epoch_ids)),
        held_whole.where(
            served.whole_ms.is_not(None), _within(connection, deployment, segment), served.epoch_id.in_(epoch_ids)
        ),
    )
    return named_tuples(connection, query, AllocatedBucket)


def without_minutes(connection: Connection, hours: Iterable[int]) -> frozenset[int]:
    """Return those of `hours` (their starts) of which only the sum is left: their 1-min roll-ups were deleted.

    Devices stand for all owners: retention deletes their minutes first, and all of an hour together. An hour in which
    nothing was recorded has neither.
    """
    bounds = {hour: {"start": hour, "end": hour + HOUR} for hour in hours}
    return frozenset(
        hour
        for hour, bound in bounds.items()
        if not fetch(connection, _HAS_MINUTES, bound) and fetch(connection, _HAS_HOUR, bound)
    )


def _any_bucket(seconds: int) -> Query:
    """Return a device with a bucket in [start, end). Device by device, so that both databases look at one row of the
    first device that has one."""
    buckets = t.device_rollup[seconds].c
    newest = select(func.max(buckets.ts)).where(
        buckets.device_id == t.device.c.device_id,
        buckets.ts >= bindparam("start", type_=BigInteger),
        buckets.ts < bindparam("end", type_=BigInteger),
    )
    return select(t.device.c.device_id).where(newest.scalar_subquery().is_not(None)).limit(literal_column("1"))


_HAS_MINUTES, _HAS_HOUR = _any_bucket(MINUTE), _any_bucket(HOUR)
_MINUTES = t.device_rollup[MINUTE].c


def oldest_minute(connection: Connection, start: int, end: int) -> int | None:
    """Return the oldest 1-min bucket of any device in [start, end); None if there is none."""
    oldest: Sequence[tuple[int | None]] = fetch(connection, _OLDEST_MINUTE, {"start": start, "end": end})
    return min((ts for (ts,) in oldest if ts is not None), default=None)


_OLDEST_MINUTE = select(
    select(func.min(_MINUTES.ts))
    .where(
        _MINUTES.device_id == t.device.c.device_id,
        _MINUTES.ts >= bindparam("start", type_=BigInteger),
        _MINUTES.ts < bindparam("end", type_=BigInteger),
    )
    .correlate(t.device)
    .scalar_subquery()
).select_from(t.device)


def deployment_buckets(connection: Connection, segment: Segment, epoch_ids: Collection[int]) -> list[RollupRow]:
    """Return deployment roll-ups of a segment, by epoch and time."""
    table = t.deployment_rollup[segment.seconds]
    query = (
        select(*(column(table, value.name) for value in table.columns))
        .where(_within(connection, table, segment), table.c.epoch_id.in_(epoch_ids))
        .order_by(table.c.epoch_id, table.c.ts)
    )
    return named_tuples(connection, query, RollupRow)


HAPPENINGS = 1000


def histogram_slices(
    connection: Connection, segment: Segment, slice_s: int, epoch_ids: Collection[int], metrics: Collection[str]
) -> list[HistogramSlice]:
    """Return (slice_ts, metric, upper_bounds, bucket, total) of all these epochs together."""
    counts = t.histogram_rollup[segment.seconds].c
    sets = t.histogram_set.c
    slice_ts = (counts.ts - counts.ts % slice_s).label("slice_ts")
    query = (
        select(
            slice_ts, counts.metric, sets.upper_bounds, counts.bucket, whole(func.sum(counts["count"])).label("total")
        )
        .join(t.histogram_set, sets.bucket_set_id == counts.bucket_set_id)
        .where(
            counts.epoch_id.in_(epoch_ids),
            counts.metric.in_(metrics),
            *(counts.ts >= segment.start, counts.ts < segment.end),
        )
        .group_by(slice_ts, counts.metric, sets.upper_bounds, counts.bucket)
    )
    return named_tuples(connection, query, HistogramSlice)


def happenings(connection: Connection, until: int) -> list[tuple[int, str]]:
    """Return (ts, message) of the newest `HAPPENINGS` events and starts of epochs up to `until`, in no order."""
    event, epoch, served = t.event.c, t.epoch.c, t.deployment.c
    events = select(event.ts, event.message).where(event.ts <= until).order_by(event.ts.desc())
    epochs = select(epoch.start_ts, served.served_model).join(t.deployment, served.deployment_id == epoch.deployment_id)
    epochs = epochs.where(epoch.start_ts <= until).order_by(epoch.start_ts.desc())
    happenings = [(ts, message) for ts, message in connection.execute(events.limit(HAPPENINGS))]
    began = connection.execute(epochs.limit(HAPPENINGS))
    return happenings + [(start_ts, f"{served_model}: an epoch began") for start_ts, served_model in began]
