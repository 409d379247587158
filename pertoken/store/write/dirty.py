"""Dirty marks: which buckets of which roll-up are to be computed again, written where the rows below them are."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Delete, Select, delete, or_, select
from sqlalchemy.sql.elements import ColumnElement

from pertoken.store.connect.bulk import run_many
from pertoken.store.query.fast_rows import fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.write.upserts import adding

Mark = tuple[str, int, int]
"""(roll-up table, owner_id, start of the bucket)"""


_COLUMNS = tuple(column.name for column in t.dirty.columns)


def marked(connection: Connection, names: tuple[str, ...]) -> list[Mark]:
    """Return the marks of these roll-ups."""
    return [(name, owner_id, ts) for name, owner_id, ts in fetch(connection, _select(names))]


def mark(connection: Connection, due: Iterable[Mark]) -> None:
    """Mark what is not marked yet."""
    run_many(connection, adding(connection.dialect.name, t.dirty), _COLUMNS, sorted(due))


def unmark(connection: Connection, names: tuple[str, ...]) -> None:
    """Delete the marks of these roll-ups."""
    run_many(connection, _delete(names), (), [()])


def of_rollups(column: Any, names: tuple[str, ...]) -> ColumnElement[bool]:
    """Return the condition that a column is one of these names, in a statement that is kept: `in_` is written again
    each time it runs."""
    return or_(*(column == name for name in names))


@cache
def _select(names: tuple[str, ...]) -> Select[Any]:
    return select(*t.dirty.columns).where(of_rollups(t.dirty.c.rollup, names))


@cache
def _delete(names: tuple[str, ...]) -> Delete:
    return delete(t.dirty).where(of_rollups(t.dirty.c.rollup, names))
