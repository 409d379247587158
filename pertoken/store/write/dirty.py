"""Dirty marks: which buckets of which roll-up are to be computed again, written where the rows below them are."""

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, delete, select

from pertoken.store.connect.bulk import run_many
from pertoken.store.schema import telemetry as t
from pertoken.store.write.upserts import adding

Mark = tuple[str, int, int]
"""(roll-up table, owner_id, start of the bucket)"""


_COLUMNS = tuple(column.name for column in t.dirty.columns)


def marked(connection: Connection, names: Collection[str]) -> list[Mark]:
    """Marks of these roll-ups."""
    found = connection.execute(select(t.dirty).where(t.dirty.c.rollup.in_(names)))
    return [(name, owner_id, ts) for name, owner_id, ts in found]


def mark(connection: Connection, due: Iterable[Mark]) -> None:
    """Mark what is not marked yet."""
    run_many(connection, adding(connection.dialect.name, t.dirty), _COLUMNS, sorted(due))


def unmark(connection: Connection, names: Collection[str]) -> None:
    """Delete the marks of these roll-ups."""
    connection.execute(delete(t.dirty).where(t.dirty.c.rollup.in_(names)))
