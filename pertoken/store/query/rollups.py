"""Rows of roll-ups, and which of them are kept: one statement each."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Connection,
    Select,
    Table,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    select,
    union_all,
)

from pertoken.store.query.fast_rows import Rows, fetch, named_tuples
from pertoken.store.query.segments import Segment, between, column
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.ids import OTHER
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.units import SHARE


def shares(seconds: int, rows: Any, whole: Any) -> CompoundSelect[Any]:
    """Return (device_id, ts, epoch_id, held_ns, busy_ns, provenance) by the minute or the hour.

    `rows` and `whole` are what is asked of the roll-up of shares and of that of deployments (with `epoch_device`). A
    device may come twice for one epoch and bucket, if it was held whole for a part of it: its times add up.
    """
    part, deployment, device = t.share_rollup[seconds].c, t.deployment_rollup[seconds], t.epoch_device.c
    unit = cast(literal(SHARE), BigInteger)
    of = deployment.c
    return union_all(
        select(part.device_id, part.ts, part.epoch_id, part.held_ns, part.busy_ns, part.provenance).where(rows),
        select(
            device.device_id,
            of.ts,
            of.epoch_id,
            (of.whole_ms * unit).label("held_ns"),
            (of.whole_busy_ms * unit).label("busy_ns"),
            of.whole_provenance,
        )
        .join_from(deployment, t.epoch_device, device.epoch_id == of.epoch_id)
        .where(of.whole_ms.is_not(None), whole),
    )


def allocated_ns(
    shared: Rows, totals: Rows, devices: Mapping[int, Sequence[int]], epochs: Container[int]
) -> dict[int, dict[int, tuple[int, int]]]:
    """Return device_id -> epoch_id -> (held_ns, busy_ns) over the same time: of rows of `sums.shared_time`, and of
    `sums.deployment_totals` what each epoch held whole of its devices.

    Epochs without a usable row, which are not among `epochs`, are foreign work.
    """
    by_device: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    whole = (
        (device_id, row.epoch_id, row.whole_ms * SHARE, (row.whole_busy_ms or 0) * SHARE)
        for row in totals
        if row.whole_ms is not None
        for device_id in devices.get(row.epoch_id, ())
    )
    for device_id, epoch_id, held_ns, busy_ns in chain(whole, shared):
        owner = epoch_id if epoch_id in epochs else OTHER
        before = by_device[device_id].get(owner, (0, 0))
        by_device[device_id][owner] = held_ns + before[0], busy_ns + before[1]
    return by_device


def _within(connection: Connection, table: Table, segment: Segment) -> Any:
    return between(connection.dialect.name, table, segment.start, segment.end)


def share_buckets(connection: Connection, segment: Segment, epoch_ids: Collection[int] | None = None) -> Rows:
    """Return who held which device in the buckets of a segment: all epochs, or some."""
    parts, deployments = t.share_rollup[segment.seconds], t.deployment_rollup[segment.seconds]
    rows, whole = _within(connection, parts, segment), _within(connection, deployments, segment)
    if epoch_ids is not None:
        rows, whole = (
            condition & table.c.epoch_id.in_(epoch_ids) for condition, table in ((rows, parts), (whole, deployments))
        )
    return named_tuples(connection, shares(segment.seconds, rows, whole))


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


def _any_bucket(seconds: int) -> Select[Any]:
    """Return a device with a bucket in [start, end). Device by device, so that both databases look at one row of the
    first device that has one."""
    of = t.device_rollup[seconds].c
    newest = select(func.max(of.ts)).where(
        of.device_id == t.device.c.device_id,
        of.ts >= bindparam("start", type_=BigInteger),
        of.ts < bindparam("end", type_=BigInteger),
    )
    return select(t.device.c.device_id).where(newest.scalar_subquery().is_not(None)).limit(literal_column("1"))


_HAS_MINUTES, _HAS_HOUR = _any_bucket(MINUTE), _any_bucket(HOUR)
_MINUTES = t.device_rollup[MINUTE].c


def oldest_minute(connection: Connection, start: int, end: int) -> int | None:
    """Return the oldest 1-min bucket of any device in [start, end); None if there is none."""
    oldest = fetch(connection, _OLDEST_MINUTE, {"start": start, "end": end})
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


def deployment_buckets(connection: Connection, segment: Segment, epoch_ids: Collection[int] | None = None) -> Rows:
    """Return deployment roll-ups of a segment, by epoch and time: of all epochs, or some."""
    table = t.deployment_rollup[segment.seconds]
    query = (
        select(*(column(table, value.name) for value in table.columns))
        .where(_within(connection, table, segment))
        .order_by(table.c.epoch_id, table.c.ts)
    )
    return named_tuples(connection, query if epoch_ids is None else query.where(table.c.epoch_id.in_(epoch_ids)))
