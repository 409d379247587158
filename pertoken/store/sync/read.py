"""What a shipper reads of its host's own database: marks behind a cursor, and the rows they stand for.

Plain sqlite3 rows, since a batch is thousands of them; every read is short, so that the writer's WAL stays small.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Table

from pertoken.errors import StoreError
from pertoken.store.connect import sqlite
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema import telemetry as t
from pertoken.store.write.outbox import RAW, SOURCES, Source

Row = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows by table, as they are now; `seq` is the last mark they cover (unchanged where a cursor does not move)."""

    rows: dict[Table, list[Row]]
    seq: int
    again: bool = False
    """Whether they replace rows of the same revision: the server's differ from ours."""

    @property
    def rows_n(self) -> int:
        """Rows of all tables."""
        return sum(map(len, self.rows.values()))


@dataclass(frozen=True, slots=True)
class Here:
    """Whose database this is and how far it has come."""

    spool_id: int
    last_seq: int
    host_ids: tuple[int, ...]
    """The last one is the one that is recorded now."""
    newest_ts: int
    oldest_ts: dict[str, int]
    """Of ticks (`raw`) and of each roll-up table, where it holds any."""
    owners: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Values of each owner column: host_id, device_id, epoch_id."""


class Local:
    """A host's telemetry, read only."""

    def __init__(self, place: StoreLocation) -> None:
        self._place = place

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        file = self._place.file("telemetry").resolve()
        try:
            with closing(sqlite.connect(file, "telemetry", "ro")) as connection:
                connection.execute("BEGIN")
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"{file}: {error}") from None

    def here(self) -> Here | None:
        """Whose database this is; None while nothing is to be shipped or nothing was recorded."""
        with self._reading() as connection:
            spool = connection.execute("SELECT spool_id, last_seq FROM spool").fetchone()
            hosts = [host_id for (host_id,) in connection.execute("SELECT host_id FROM host ORDER BY last_ts")]
            if spool is None or not hosts:
                return None
            (newest,) = connection.execute("SELECT max(last_ts) FROM host").fetchone()
            devices = [each for (each,) in connection.execute("SELECT device_id FROM device")]
            epochs = [each for (each,) in connection.execute("SELECT epoch_id FROM epoch")]
            owners = {"host_id": tuple(hosts), "device_id": tuple(devices), "epoch_id": tuple(epochs)}
            return Here(spool[0], spool[1], tuple(hosts), newest, _oldest(connection, owners), owners)

    def after(self, seq: int, at_most: int) -> Batch | None:
        """Rows behind up to `at_most` marks after `seq`, oldest first; None if there is none."""
        with self._reading() as connection:
            window = "SELECT source, seq FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?"
            marks = connection.execute(window, (seq, at_most)).fetchall()
            if not marks:
                return None
            last = marks[-1][1]
            rows: dict[Table, list[Row]] = {}
            for source in sorted({name for name, _ in marks}):
                for table, query in _marked(SOURCES[source]):
                    found = rows.setdefault(table, [])
                    for parameters in _parameters(connection, source, table, seq, last):
                        found.extend(connection.execute(query, parameters))
        return Batch(rows, last)

    def identities(self, seq: int) -> Batch:
        """Every row without time: hosts, devices, epochs, events and what cannot be read."""
        tables = (t.host, t.device, t.engine, t.deployment, t.epoch, t.epoch_device, t.histogram_set)
        with self._reading() as connection:
            rows: dict[Table, list[Row]] = {
                table: connection.execute(f"SELECT {_columns(table)} FROM {table.name}").fetchall()
                for table in (*tables, t.capability, t.event)
            }
        return Batch(rows, seq, again=True)

    def between(self, table: Table, owner: str, owners: Sequence[int], start: int, end: int) -> list[Row]:
        """A table's rows of some owners with start <= ts < end."""
        between = _middle(table)
        matched = f"{owner} = ? AND {between} = ?" if between else f"{owner} = ?"
        query = f"SELECT {_columns(table)} FROM {table.name} WHERE {matched} AND ts >= ? AND ts < ?"
        found: list[Row] = []
        with self._reading() as connection:
            for key in _keys(connection, table, owner, owners):
                found += connection.execute(query, (*key, start, end))
        return found


def _middle(table: Table) -> str | None:
    """The key column that stands between the owner and the time, if one does."""
    second = list(table.primary_key)[1].name if len(table.primary_key) > 1 else None
    return second if second != "ts" and "ts" in table.c else None


def _keys(connection: sqlite3.Connection, table: Table, owner: str, owners: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Beginnings of a table's key: each owner with each value that stands between it and the time.

    They are found by seeking from one to the next: reading all rows of an owner would grow with its history.
    """
    between = _middle(table)
    for each in owners:
        if between is None:
            yield (each,)
            continue
        first = f"SELECT min({between}) FROM {table.name} WHERE {owner} = ?"
        (value,) = connection.execute(first, (each,)).fetchone()
        while value is not None:
            yield each, value
            (value,) = connection.execute(f"{first} AND {between} > ?", (each, value)).fetchone()


def _oldest(connection: sqlite3.Connection, owners: dict[str, tuple[int, ...]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for table, owner in (source.tables[0] for source in SOURCES.values() if source.bucket_s):
        between = _middle(table)
        query = f"SELECT min(ts) FROM {table.name} WHERE {owner} = ?" + (f" AND {between} = ?" if between else "")
        oldest = [
            connection.execute(query, key).fetchone()[0] for key in _keys(connection, table, owner, owners[owner])
        ]
        known = [ts for ts in oldest if ts is not None]
        if known:
            found[table.name] = min(known)
    return found


def _columns(table: Table, prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{column.name}"' for column in table.columns)


@cache
def _marked(source: Source) -> tuple[tuple[Table, str], ...]:
    """For each table of a source: the query for rows behind marks, by what `_parameters` gives."""
    found = []
    for table, owner in source.tables:
        columns = _columns(table, "r.")
        # Ticks are named by their end: a minute holds (start, end].
        within = "r.ts > o.ts AND r.ts <= o.ts + 60" if source in RAW else "r.ts = o.ts"
        behind = "o.source = ? AND o.seq > ? AND o.seq <= ?"
        if between := _middle(table):
            inside = "r.ts > ? AND r.ts <= ? + 60" if source in RAW else "r.ts = ? AND ? IS NOT NULL"
            query = f"SELECT {columns} FROM {table.name} r WHERE r.{owner} = ? AND r.{between} = ? AND {inside}"
        elif source.bucket_s:
            query = f"SELECT {columns} FROM outbox o CROSS JOIN {table.name} r ON r.{owner} = o.owner_id AND {within}"
            query += f" WHERE {behind}"
        elif table is t.epoch_device:
            query = f"SELECT {columns} FROM outbox o CROSS JOIN epoch e ON e.deployment_id = o.owner_id"
            query += f" JOIN epoch_device r ON r.epoch_id = e.epoch_id WHERE {behind}"
        else:
            query = f"SELECT {columns} FROM outbox o CROSS JOIN {table.name} r ON r.{owner} = o.owner_id WHERE {behind}"
        found.append((table, query))
    return tuple(found)


def _parameters(
    connection: sqlite3.Connection, source: str, table: Table, seq: int, last: int
) -> Iterator[tuple[Any, ...]]:
    """What to run a table's query with for the marks of a source with seq < mark <= last."""
    between = _middle(table)
    if between is None:
        yield source, seq, last
        return
    query = "SELECT owner_id, ts FROM outbox WHERE source = ? AND seq > ? AND seq <= ?"
    starts: dict[int, list[int]] = {}
    for owner_id, ts in connection.execute(query, (source, seq, last)).fetchall():
        starts.setdefault(owner_id, []).append(ts)
    owner = next(column for each, column in SOURCES[source].tables if each is table)
    for key in _keys(connection, table, owner, starts):
        for ts in starts[key[0]]:
            yield *key, ts, ts
