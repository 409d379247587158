"""Counters of commits and schema changes, which cost little enough to be read at every refresh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine

from pertoken.store.connect.open import Store, explained
from pertoken.store.connect.sqlite import driver


@dataclass(frozen=True, slots=True)
class Changes:
    """Two values of a database that are compared with those of another time."""

    commits: tuple[object, ...]
    """Equal as long as nobody else commits."""
    tables: tuple[object, ...]
    """Equal as long as nobody alters a table, as a migration does."""


def changes(store: Store) -> Changes | None:
    """Return what changes with every commit; None for a server, which does not count them. Raises StoreError."""
    engines = {"telemetry": store.telemetry, "advice": store.advice}
    opened = {group: engine for group, engine in engines.items() if engine is not None}
    if any(engine.dialect.name != "sqlite" for engine in opened.values()):
        return None
    with explained(store.location):
        counters = [number for group, engine in opened.items() for number in _counters(group, engine)]
    return Changes(tuple(commits for commits, _ in counters), tuple(tables for _, tables in counters))


def _counters(group: str, engine: Engine) -> Iterator[tuple[object, object]]:
    with engine.connect() as connection:
        raw = driver(connection)
        # Counters of two connections cannot be compared: they may be of different files.
        own = connection.connection.info.setdefault("own", object())
        yield own, own
        (commits,) = raw.execute(f"PRAGMA {group}.data_version").fetchone()
        (tables,) = raw.execute(f"PRAGMA {group}.schema_version").fetchone()
        yield commits, tables
