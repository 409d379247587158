"""Dirty marks: which buckets of which roll-up are to be computed anew, written where the rows below them are.

On SQLite they are known without being read: the seals keep every one of them in mind.
"""

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, delete, select

from pertoken.store import telemetry as t
from pertoken.store.open import put_rows
from pertoken.store.seal import Seals
from pertoken.store.sqlite import driver
from pertoken.store.upserts import adding

Mark = tuple[str, int, int]
"""(roll-up table, owner_id, start of the bucket)"""


def marked(connection: Connection, names: Collection[str], seals: Seals | None) -> list[Mark]:
    """Marks of these roll-ups."""
    if seals is None:
        found = connection.execute(select(t.dirty).where(t.dirty.c.rollup.in_(names)))
        return [(str(name), owner_id, ts) for name, owner_id, ts in found]
    return [(name, owner_id, ts) for name, owner_id, ts in seals.marks.known_keys() if name in names]


def mark(connection: Connection, due: Iterable[Mark], seals: Seals | None) -> None:
    """Mark what is not marked yet."""
    if seals is None:
        rows = [{"rollup": name, "owner_id": owner_id, "ts": ts} for name, owner_id, ts in sorted(due)]
        if rows:
            connection.execute(adding(connection.dialect.name, t.dirty), rows)
    elif missing := seals.marks.missing(due):
        put_rows(connection, "INSERT INTO dirty (rollup, owner_id, ts) VALUES (?, ?, ?)", missing)
        seals.marks.put(missing)


def unmark(connection: Connection, names: Collection[str], marks: Iterable[Mark], seals: Seals | None) -> None:
    """Delete the marks of these roll-ups, which are `marks`."""
    if seals is None:
        connection.execute(delete(t.dirty).where(t.dirty.c.rollup.in_(names)))
        return
    places = ", ".join("?" * len(names))
    driver(connection).execute(f"DELETE FROM dirty WHERE rollup IN ({places})", tuple(names))
    seals.marks.drop(marks)
