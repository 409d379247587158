"""Roll-ups: dirty buckets are recomputed whole from the rows below them, so that doing it twice changes nothing.

A minute is computed from ticks, an hour from minutes. Recomputing a minute marks its hour dirty in the same
transaction. A bucket that changed gets a higher revision.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Table, bindparam, case, cast, func, literal_column, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.elements import ColumnElement

from pertoken.store import telemetry as t
from pertoken.store.dirty import Mark, mark, marked, unmark
from pertoken.store.open import driver, upsert
from pertoken.store.seal import SEALED, Seals

MINUTE, HOUR = 60, 3600
ROLL_UP_S = 10
"""Roll-ups are made by the first tick of each stretch of this length; hours by the first of each minute."""
Changed = Callable[[Connection, Iterable[Mark]], None]
"""Told, within the transaction, which buckets changed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rollup:
    """How one pair of roll-up tables is made from its samples."""

    name: str
    samples: Table
    tables: Mapping[int, Table]
    owner: str
    special: Mapping[str, ColumnElement[Any]]
    """Minute columns that are not the plain sum (or count) of a sample's column."""


_ONE: Any = literal_column("1")
_SERVED = t.deployment_sample.c
_BUSY: Any = func.coalesce(_SERVED.busy_ms, 0)
ROLLUPS = (
    _Rollup(
        "device",
        t.device_sample,
        t.device_rollup,
        "device_id",
        {
            "samples": func.count(),
            # Bit 1 is "idle"; anything else slowed the clocks.
            "throttled_n": func.count(case((t.device_sample.c.throttle_reasons.bitwise_and(~1) != 0, _ONE))),
        },
    ),
    _Rollup("host", t.host_sample, t.host_rollup, "host_id", {"samples": func.count()}),
    _Rollup(
        "deployment",
        t.deployment_sample,
        t.deployment_rollup,
        "epoch_id",
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
        },
    ),
    _Rollup(
        "share",
        t.device_share,
        t.share_rollup,
        "device_id",
        {
            "held_ns": func.sum(t.device_share.c.share_1e6 * t.device_share.c.duration_ms),
            "busy_ns": func.sum(t.device_share.c.share_1e6 * t.device_share.c.busy_ms),
            "provenance": func.max(t.device_share.c.provenance),
        },
    ),
    _Rollup("histogram", t.histogram_sample, t.histogram_rollup, "epoch_id", {}),
    _Rollup("engine_counter", t.engine_counter_sample, t.engine_counter_rollup, "epoch_id", {}),
)


def roll_up(connection: Connection, seconds: int, seals: Seals | None = None, changed: Changed | None = None) -> int:
    """Recompute every dirty bucket of `seconds`, in the caller's transaction; returns how many.

    Minutes come first: they are what hours are made of.
    """
    names = [each.tables[seconds].name for each in ROLLUPS]
    marks = marked(connection, names, seals)
    if not marks:
        return 0
    for each in ROLLUPS:
        name = each.tables[seconds].name
        if buckets := [(owner_id, ts) for rollup, owner_id, ts in marks if rollup == name]:
            _recompute(connection, each, seconds, buckets, seals)
    unmark(connection, names, marks, seals)
    if changed is not None:
        changed(connection, marks)
    if seconds == MINUTE:
        # Names of tables are of a type of their own, which a seal cannot sum.
        above = {each.tables[MINUTE].name: str(each.tables[HOUR].name) for each in ROLLUPS}
        mark(connection, {(above[name], owner_id, ts // HOUR * HOUR) for name, owner_id, ts in marks}, seals)
    return len(marks)


def _recompute(
    connection: Connection, rollup: _Rollup, seconds: int, buckets: list[tuple[int, int]], seals: Seals | None
) -> None:
    changing = (
        seals.changing(SEALED[rollup.tables[seconds].name], (rollup.owner, "ts"), buckets)
        if seals is not None
        else nullcontext()
    )
    bounds = [{"b_owner": owner_id, "b_start": ts, "b_end": ts + seconds} for owner_id, ts in buckets]
    with changing:
        if connection.dialect.name == "sqlite":
            sql, constants = _sqlite(rollup, seconds)
            driver(connection).executemany(sql, [{**constants, **each} for each in bounds])
        else:
            connection.execute(_statement(connection.dialect.name, rollup, seconds), bounds)


@cache
def _sqlite(rollup: _Rollup, seconds: int) -> tuple[str, Mapping[str, Any]]:
    """The statement in SQLite's own words, with its constants: what SQLAlchemy does around each use costs more than
    the statement does."""
    compiled = _statement("sqlite", rollup, seconds).compile(
        dialect=sqlite.dialect(paramstyle="named"),
        schema_translate_map={"telemetry": "main"},
        render_schema_translate=True,
    )
    return str(compiled), compiled.params


@cache
def _statement(dialect: str, rollup: _Rollup, seconds: int) -> Any:
    """INSERT .. SELECT .. GROUP BY the key .. ON CONFLICT: one bucket of one owner, by bound parameters."""
    target = rollup.tables[seconds]
    source = rollup.samples if seconds == MINUTE else rollup.tables[MINUTE]
    keys = [column.name for column in target.primary_key]
    columns: dict[str, Any] = {}
    for column in target.columns:
        if column.name == "ts":
            columns[column.name] = cast(bindparam("b_start"), BigInteger)
        elif column.name in keys:
            columns[column.name] = source.c[column.name]
        elif column.name == "revision":
            columns[column.name] = cast(literal_column("1"), BigInteger)
        else:
            columns[column.name] = cast(_aggregate(rollup, column.name, source, seconds), BigInteger)
    # Ticks are named by their end, so a minute holds (start, end]; minutes by their start, so an hour [start, end).
    start: Any = bindparam("b_start")
    end: Any = bindparam("b_end")
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


def _aggregate(rollup: _Rollup, name: str, source: Table, seconds: int) -> Any:
    gauge = name.endswith("_n") and name not in rollup.special
    if seconds == HOUR:
        if gauge:
            # NULL is as many as there are samples, in the row and in the sum.
            return func.nullif(func.sum(func.coalesce(source.c[name], source.c.samples)), func.sum(source.c.samples))
        return func.max(source.c[name]) if name.endswith("provenance") else func.sum(source.c[name])
    if name in rollup.special:
        return rollup.special[name]
    if gauge:
        return func.nullif(func.count(source.c[name.removesuffix("_n")]), func.count())
    return func.sum(source.c[name.removesuffix("_sum")])
