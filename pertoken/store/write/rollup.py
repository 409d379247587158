"""Roll-ups: dirty buckets are recomputed whole from the rows below them, so that doing it twice changes nothing.

A minute is computed from ticks, an hour from minutes. Recomputing a minute marks its hour dirty in the same
transaction. A bucket that changed gets a higher revision. One that cannot be computed goes into quarantine
(`store.write.rollup`), and all others are computed without it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Connection,
    Delete,
    Insert,
    Table,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
)
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.sql.elements import ColumnElement

from pertoken import __version__
from pertoken.provenance import Provenance
from pertoken.store.connect.open import savepoint, upsert
from pertoken.store.connect.sqlite import UNREADABLE_VALUE, run_many
from pertoken.store.query.rollups import Query, fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR, MINUTE, THROTTLED, busy_ms, busy_provenance, busy_sum
from pertoken.units import format_utc

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LEARNED = {"instance_type", "region", "purchase", "plug_source"}
"""Columns that an agent may fail to learn again after a restart: unknown does not replace what was known."""


def columns_of(row: DataclassInstance) -> dict[str, int | str | None]:
    """Return columns of a flat value by name; `asdict()` copies deeply and costs more than the rest of a write."""
    return {
        name: int(value) if isinstance(value := getattr(row, name), Provenance) else value
        for name in row.__dataclass_fields__
    }


@cache
def replacing(dialect: str, table: Table, kept: tuple[str, ...]) -> Insert:
    """Return an upsert that replaces every column but the key and those `kept`."""
    keys = [column.name for column in table.primary_key]
    statement = upsert(dialect, table)
    changed: dict[str, ColumnElement[int]] = {
        c.name: statement.excluded[c.name] for c in table.columns if c.name not in (*keys, *kept)
    }
    for name in _LEARNED & changed.keys():
        changed[name] = func.coalesce(changed[name], table.c[name])
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


@cache
def adding(dialect: str, table: Table) -> Insert:
    """Return an insert that leaves a row whose key is there as it is."""
    return upsert(dialect, table).on_conflict_do_nothing()


Mark = tuple[str, int, int]
"""(roll-up table, owner_id, start of the bucket)"""


_COLUMNS = tuple(column.name for column in t.dirty.columns)


def marked(connection: Connection, names: tuple[str, ...]) -> list[Mark]:
    """Return the marks of these roll-ups."""
    return list(fetch(connection, _select(names)))


def mark(connection: Connection, due: Iterable[Mark]) -> None:
    """Mark what is not marked yet."""
    run_many(connection, adding(connection.dialect.name, t.dirty), _COLUMNS, sorted(due))


def unmark(connection: Connection, names: tuple[str, ...]) -> None:
    """Delete the marks of these roll-ups."""
    run_many(connection, _delete(names), (), [()])


def of_rollups(column: ColumnElement[str], names: tuple[str, ...]) -> ColumnElement[bool]:
    """Return the condition that a column is one of these names, in a statement that is kept: `in_` is written again
    each time it runs."""
    return or_(*(column == name for name in names))


@cache
def _select(names: tuple[str, ...]) -> Query:
    return select(*t.dirty.columns).where(of_rollups(t.dirty.c.rollup, names))


@cache
def _delete(names: tuple[str, ...]) -> Delete:
    return delete(t.dirty).where(of_rollups(t.dirty.c.rollup, names))


_TABLE = t.quarantine
_BUCKET = _TABLE.c.rollup, _TABLE.c.owner_id, _TABLE.c.ts
MAX_SHOWN = 20
"""Findings about single buckets; of more only the number is reported."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that could not be computed, and why."""

    rollup: str
    owner_id: int
    ts: int
    reason: str

    def __str__(self) -> str:
        """`device_1m of 5, 2026-11-21 10:00Z: cannot be rolled up: integer overflow`."""
        return f"{self.rollup} of {self.owner_id}, {format_utc(self.ts)}: cannot be rolled up: {self.reason}"


def quarantined_marks(connection: Connection, rollups: tuple[str, ...]) -> set[Mark]:
    """Return the buckets of these roll-ups that are in quarantine."""
    return set(fetch(connection, _quarantined(rollups)))


@cache
def _quarantined(rollups: tuple[str, ...]) -> Query:
    return select(*_BUCKET).where(of_rollups(_TABLE.c.rollup, rollups))


def of_other_versions(connection: Connection) -> list[Mark]:
    """Return buckets that another version of pertoken failed to compute."""
    query = select(*_BUCKET).where(_TABLE.c.agent_version != __version__)
    return [(rollup, owner_id, ts) for rollup, owner_id, ts in connection.execute(query)]


def update(connection: Connection, computed: Collection[Mark], failed: Mapping[Mark, str]) -> None:
    """Release the buckets that were computed, and store those that failed, with the reason of each."""
    for rollup, owner_id, ts in (*computed, *failed):
        connection.execute(
            delete(_TABLE).where(_TABLE.c.rollup == rollup, _TABLE.c.owner_id == owner_id, _TABLE.c.ts == ts)
        )
    for (rollup, owner_id, ts), reason in failed.items():
        row = {"rollup": rollup, "owner_id": owner_id, "ts": ts, "reason": reason, "agent_version": __version__}
        connection.execute(insert(_TABLE).values(row))


def discard(connection: Connection, rollups: Sequence[str], before_ts: int) -> None:
    """Release the buckets of these roll-ups that begin before `before_ts`: the rows below them were deleted."""
    old = select(*_BUCKET).where(_TABLE.c.rollup.in_(rollups), _TABLE.c.ts < before_ts)
    if buckets := [(rollup, owner_id, ts) for rollup, owner_id, ts in connection.execute(old)]:
        update(connection, buckets, {})


def findings(connection: Connection) -> Iterator[str]:
    """Yield one line for each bucket in quarantine, oldest first; beyond `MAX_SHOWN` only how many more there are."""
    query = select(*_BUCKET, _TABLE.c.reason).order_by(_TABLE.c.ts, _TABLE.c.rollup)
    for row in connection.execute(query.limit(MAX_SHOWN)):
        yield f"{Bucket(*row)}"
    n = connection.execute(select(func.count()).select_from(_TABLE)).scalar_one()
    if n > MAX_SHOWN:
        yield f"{n - MAX_SHOWN} more buckets cannot be rolled up"


MAX_SUM = 2**58
"""A bucket with a larger sum goes into quarantine. An hour of a host with 20 TB of memory, sampled every second, stays
below it; thirty buckets add up without leaving 64 bits, so that a window over them can be read."""
_NO_SUM = f"a sum is not a whole number, or beyond {MAX_SUM}"
_ABOUT_VALUES = ("overflow", "UTF-8", UNREADABLE_VALUE)
"""Parts of SQLite's messages about the values of a row."""
Changed = Callable[[Connection, Iterable[Mark]], None]
"""Called, within the transaction, with the buckets that changed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rollup:
    """Statements that make one pair of roll-up tables from its samples."""

    name: str
    samples: Table
    special: Mapping[str, ColumnElement[int]] = field(default_factory=dict)
    """Minute columns that are not the plain sum (or count) of a sample's column."""

    @property
    def tables(self) -> Mapping[int, Table]:
        """Tables by the length of their buckets."""
        return t.ROLLUPS[self.name]

    @property
    def owner(self) -> str:
        """Column of the owner of the rows."""
        return next(iter(self.samples.primary_key)).name


_ONE: ColumnElement[int] = literal_column("1")
_SERVED = t.deployment_sample.c
_BUSY: ColumnElement[int] = func.coalesce(busy_ms(_SERVED), 0)


def _throttled(bits: int) -> ColumnElement[int]:
    """Count the samples in which one of these reasons slowed the clocks."""
    return func.count(case((t.device_sample.c.throttle_reasons.bitwise_and(bits) != 0, _ONE)))


ROLLUPS = (
    _Rollup(
        "device",
        t.device_sample,
        {
            "samples": func.count(),
            # Bit 1 is "idle"; anything else slowed the clocks.
            "throttled_n": _throttled(~1),
            **{name: _throttled(bits) for name, bits in THROTTLED.items()},
        },
    ),
    _Rollup("host", t.host_sample, {"samples": func.count()}),
    _Rollup(
        "deployment",
        t.deployment_sample,
        {
            "samples": func.count(),
            "incomplete_n": func.count(case((_SERVED.complete.is_(False), _ONE))),
            "whole_ms": func.sum(case((_SERVED.whole_provenance.is_not(None), _SERVED.duration_ms))),
            "whole_busy_ms": func.sum(
                case(
                    (_SERVED.whole_provenance.is_(None), None),
                    (_SERVED.duration_ms > _BUSY, _BUSY),
                    else_=_SERVED.duration_ms,
                )
            ),
            "whole_provenance": func.max(_SERVED.whole_provenance),
            "busy_ms": busy_sum(_SERVED),
            "busy_provenance": func.max(busy_provenance(_SERVED)),
        },
    ),
    _Rollup(
        "share",
        t.device_share,
        {
            "held_ns": func.sum(t.device_share.c.share_1e6 * t.device_share.c.duration_ms),
            "busy_ns": func.sum(t.device_share.c.share_1e6 * t.device_share.c.busy_ms),
            "provenance": func.max(t.device_share.c.provenance),
        },
    ),
    _Rollup("histogram", t.histogram_sample),
    _Rollup("engine_counter", t.engine_counter_sample),
)


ROLLED_FROM = {
    **{rollup.samples.name: str(rollup.tables[MINUTE].name) for rollup in ROLLUPS},
    **{rollup.tables[MINUTE].name: str(rollup.tables[HOUR].name) for rollup in ROLLUPS},
}
"""By the name of a table: the roll-up that is computed from its rows. A plain str: SQLAlchemy's own names of tables are
of a type that a checksum cannot sum."""


@dataclass(frozen=True, slots=True)
class RolledUp:
    """Result of a roll-up: the number of due buckets, and those that were quarantined now."""

    buckets: int
    failed: tuple[Bucket, ...] = ()


def roll_up(connection: Connection, seconds: int, changed: Changed | None = None) -> RolledUp:
    """Recompute every dirty bucket of `seconds`, in the caller's transaction.

    Minutes come first: they are what hours are made of.
    """
    names = tuple(str(rollup.tables[seconds].name) for rollup in ROLLUPS)
    marks = marked(connection, names)
    if not marks:
        return RolledUp(0)
    quarantined = quarantined_marks(connection, names)
    # A bucket that failed before is tried alone: all others are then computed at once.
    failed = _attempt(connection, seconds, [mark for mark in marks if mark not in quarantined])
    for retried in quarantined.intersection(marks):
        failed |= _attempt(connection, seconds, [retried])
    computed = [mark for mark in marks if mark not in failed] if failed else marks
    unmark(connection, names)
    if failed or not quarantined.isdisjoint(computed):
        update(connection, [*quarantined.intersection(computed)], failed)
    if changed is not None:
        changed(connection, computed)
    if seconds == MINUTE:
        mark(connection, {(ROLLED_FROM[name], owner_id, ts // HOUR * HOUR) for name, owner_id, ts in computed})
    new = (Bucket(*key, reason) for key, reason in failed.items() if key not in quarantined)
    return RolledUp(len(marks), tuple(new))


def _attempt(connection: Connection, seconds: int, due: Sequence[Mark]) -> dict[Mark, str]:
    """Recompute these buckets: all at once, then each roll-up and each bucket alone if that fails.

    Returns those that failed, with the reason. Raises the driver's error if it is not about the values of a row.
    """
    if not due:
        return {}
    of_rollup: dict[str, list[Mark]] = defaultdict(list)
    for bucket in due:
        of_rollup[bucket[0]].append(bucket)
    try:
        with savepoint(connection):
            for rollup in ROLLUPS:
                _recompute(connection, rollup, seconds, of_rollup.get(rollup.tables[seconds].name, ()))
    except Exception as error:
        reason = _about_values(error)
        if reason is None:
            raise
        if len(due) == 1:
            return {due[0]: reason}
        parts = list(of_rollup.values()) if len(of_rollup) > 1 else [[bucket] for bucket in due]
        return {key: why for part in parts for key, why in _attempt(connection, seconds, part).items()}
    return {}


def _about_values(error: Exception) -> str | None:
    """Return what is wrong with the rows of a bucket; None if the error is about something else."""
    text = (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
    constraint = isinstance(error, sqlite3.IntegrityError | IntegrityError)
    if constraint:
        # A sum that is refused has no revision (`_statement`).
        return _NO_SUM if "revision" in text else text
    if isinstance(error, sqlite3.DataError | DataError | OverflowError | TypeError | ValueError):
        return text
    if isinstance(error, sqlite3.OperationalError) and any(part in text for part in _ABOUT_VALUES):
        return text
    return None


def _recompute(connection: Connection, rollup: _Rollup, seconds: int, due: Sequence[Mark]) -> None:
    bounds = [(owner_id, ts, ts + seconds) for _, owner_id, ts in due]
    run_many(connection, _statement(connection.dialect.name, rollup, seconds), ("b_owner", "b_start", "b_end"), bounds)


@cache
def _statement(dialect: str, rollup: _Rollup, seconds: int) -> Insert:
    """Return INSERT .. SELECT .. GROUP BY the key .. ON CONFLICT: one bucket of one owner, by bound parameters."""
    target = rollup.tables[seconds]
    source = rollup.samples if seconds == MINUTE else rollup.tables[MINUTE]
    keys = [column.name for column in target.primary_key]
    columns: dict[str, ColumnElement[int]] = {}
    usable = []
    for column in target.columns:
        if column.name == "ts":
            columns[column.name] = cast(bindparam("b_start"), BigInteger)
        elif column.name in keys:
            columns[column.name] = source.c[column.name]
        elif column.name != "revision":
            aggregate = _aggregate(rollup, column.name, source, seconds)
            columns[column.name] = cast(aggregate, BigInteger)
            if not column.name.endswith("_n"):
                usable.append(_usable(dialect, aggregate))
    # Without a revision the table refuses the row.
    columns["revision"] = case((and_(*usable), cast(_ONE, BigInteger)))
    # Ticks are named by their end, so a minute holds (start, end]; minutes by their start, so an hour [start, end).
    start: ColumnElement[int] = bindparam("b_start")
    end: ColumnElement[int] = bindparam("b_end")
    ts = source.c.ts
    inside = (ts > start) & (ts <= end) if seconds == MINUTE else (ts >= start) & (ts < end)
    rows = (
        select(*(expression.label(name) for name, expression in columns.items()))
        .where(source.c[rollup.owner] == bindparam("b_owner"), inside)
        .group_by(*(source.c[name] for name in keys if name != "ts"))
    )
    statement = upsert(dialect, target).from_select(list(columns), rows)
    return statement.on_conflict_do_update(
        index_elements=keys,
        set_={
            **{name: statement.excluded[name] for name in columns if name not in keys},
            "revision": target.c.revision + 1,
        },
    )


def _usable(dialect: str, aggregate: ColumnElement[int]) -> ColumnElement[bool]:
    """Return whether an aggregate is a whole number that others can be added to, or NULL."""
    usable: ColumnElement[bool] = aggregate.between(literal_column(str(-MAX_SUM)), literal_column(str(MAX_SUM)))
    if dialect == "sqlite":  # a column of integers may hold a fraction or text there
        usable = and_(func.typeof(aggregate) == literal_column("'integer'"), usable)
    return or_(aggregate.is_(None), usable)


def _aggregate(rollup: _Rollup, name: str, source: Table, seconds: int) -> ColumnElement[int]:
    gauge = name.endswith("_n") and name not in rollup.special
    if seconds == HOUR:
        if gauge:
            # NULL is as many as there are samples, in the row and in the sum.
            return func.nullif(func.sum(func.coalesce(source.c[name], source.c.samples)), func.sum(source.c.samples))
        if name in ("busy_ms", "busy_provenance") and rollup.name == "deployment":
            return busy_sum(source.c) if name == "busy_ms" else func.max(busy_provenance(source.c))
        return func.max(source.c[name]) if name.endswith("provenance") else func.sum(source.c[name])
    if name in rollup.special:
        return rollup.special[name]
    if gauge:
        return func.nullif(func.count(source.c[name.removesuffix("_n")]), func.count())
    return func.sum(source.c[name.removesuffix("_sum")])
