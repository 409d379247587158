"""Seals: how many rows a table holds in a stretch of time, and two sums over their CRC32.

SQLite keeps no checksum of what it stores: a flipped bit is read as if it had been written. Every row of telemetry is
therefore counted in a seal, changed in the same transaction by what the row adds and takes away. A row that is later
read with another content, is gone, or came from nowhere, no longer adds up; `store.verify` looks for that.

A seal is a sum over rows, so that it does not depend on their order, and is changed without reading the rest. What is
taken away is taken as it is read: a row that was damaged meanwhile leaves its difference behind. The second sum weighs
each CRC32 by the row's owner: what it is off by, divided by what the first is off by, tells whose row was damaged.
"""

import marshal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, Table

from pertoken.store import telemetry as t
from pertoken.store.open import put_rows
from pertoken.store.sqlite import driver

HOUR, DAY = 3600, 86_400
PRIME = 2**61 - 1
"""What the sums by owner are taken by: two of them still fit into an integer of SQLite's."""
Key = tuple[str, int]
"""(table, start of the stretch)"""
Sum = tuple[int, int, int]
"""(rows, sum of their CRC32, sum of each CRC32 times its owner, modulo PRIME)"""
NOTHING: Sum = (0, 0, 0)


@dataclass(frozen=True, eq=False)
class Sealed:
    """How the rows of one table are gathered into seals."""

    table: Table
    owner: str | None
    """Column of whose row it is; None: nobody's."""
    span_s: int = 0
    """Length of the stretch of `ts` one seal covers; 0: all of it."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns in the order in which their values are summed. One added later comes last and may be NULL."""
        return tuple(column.name for column in self.table.columns)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns of the primary key."""
        return tuple(column.name for column in self.table.primary_key)

    @cached_property
    def owners(self) -> str:
        """SQL: every owner there is, found by seeking from one to the next."""
        first = f"SELECT min({self.owner}) FROM {self.table.name}"
        return (
            f"WITH RECURSIVE owners (id) AS ({first} UNION ALL "
            f"SELECT ({first} WHERE {self.owner} > id) FROM owners WHERE id IS NOT NULL) "
            "SELECT id FROM owners WHERE id IS NOT NULL"
        )

    @cached_property
    def stretch(self) -> str:
        """SQL: the rows from one time (first parameter) until before another, by the key."""
        return f"{self.owner} IN ({self.owners}) AND ts >= ? AND ts < ?"

    def sums(self, rows: Iterable[tuple[Any, ...]], into: defaultdict[int, list[int]]) -> None:
        """Count rows into [rows, sum, sum by owner (not yet modulo PRIME)], by the start of their stretch."""
        span_s, columns = self.span_s, self.columns
        at = columns.index("ts") if span_s else 0
        owner = None if self.owner is None else columns.index(self.owner)
        start, total = None, into[0] if not span_s else []
        for row in rows:
            if span_s and row[at] // span_s * span_s != start:
                start = row[at] // span_s * span_s
                total = into[start]
            crc = row_crc(row)
            total[0] += 1
            total[1] += crc
            if owner is not None:
                total[2] += crc * int(row[owner])  # a damaged record may hold text


SAMPLES: tuple[Sealed, ...] = tuple(
    Sealed(table, next(iter(table.primary_key)).name, HOUR)
    for table in (
        t.device_sample,
        t.host_sample,
        t.agent_sample,
        t.deployment_sample,
        t.device_share,
        t.histogram_sample,
        t.engine_counter_sample,
    )
)
_ROLLUPS = (
    t.device_rollup,
    t.host_rollup,
    t.deployment_rollup,
    t.share_rollup,
    t.histogram_rollup,
    t.engine_counter_rollup,
)
ROLLED: tuple[Sealed, ...] = tuple(
    Sealed(table, next(iter(table.primary_key)).name, HOUR if seconds < HOUR else DAY)
    for rollup in _ROLLUPS
    for seconds, table in rollup.items()
)
UNTIMED: tuple[Sealed, ...] = tuple(
    Sealed(table, next(iter(table.primary_key)).name)
    for table in (
        t.host,
        t.device,
        t.engine,
        t.deployment,
        t.epoch,
        t.epoch_device,
        t.histogram_set,
        t.counter_state,
        t.capability,
    )
)
MARKS, OUTBOX, SPOOL = Sealed(t.dirty, None), Sealed(t.outbox, "owner_id"), Sealed(t.spool, None)
EVENTS, QUARANTINE = Sealed(t.event, "event_id"), Sealed(t.quarantine, "owner_id")
SEALED = {each.table.name: each for each in (*SAMPLES, *ROLLED, *UNTIMED, EVENTS, MARKS, QUARANTINE, OUTBOX, SPOOL)}
"""Every table of telemetry but the seals themselves and `batch`, whose rows are chained."""


def row_crc(row: tuple[Any, ...]) -> int:
    """CRC32 of a row's values: int, str or None, in the order of its columns.

    They are encoded by `marshal` in its version 2, which never changed and holds no references; NULLs at the end do
    not count, so that a column added later leaves the sums of older rows as they are.
    """
    return crc32(marshal.dumps(row, 2)[5:].rstrip(b"N"))


def chained(before: int, seq: int, ts: int, row_count: int, crc_sum: int) -> int:
    """CRC32 of a batch and, through `before`, of every batch before it."""
    return crc32(marshal.dumps((seq, ts, row_count, crc_sum), 2), before)


class Seals:
    """The seals of one writing connection, gathered over a transaction and stored within it."""

    def __init__(self, connection: Connection) -> None:
        """Nothing is read yet; `connection` is one to SQLite, and in a transaction whenever the seals are used."""
        self._connection = connection
        self._changes: defaultdict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.counters = Known(self, SEALED[t.counter_state.name])
        self.marks = Known(self, SEALED[t.dirty.name])
        self.samples: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        """Samples inserted in this transaction, and the sum of their CRC32, by the hour they are of."""

    def begin(self) -> None:
        """Know what is there, before a transaction changes it."""
        self.counters.learn()
        self.marks.learn()

    def discard(self) -> None:
        """Forget what a transaction that was rolled back had gathered."""
        self._changes.clear()
        self.samples.clear()
        self.counters.forget()
        self.marks.forget()

    def add_samples(self, sealed: Sealed, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count samples that are inserted, also as such."""
        for start, (n, crc_sum, _) in self.add(sealed, rows).items():
            counted = self.samples[start]
            counted[0] += n
            counted[1] += crc_sum

    def add(self, sealed: Sealed, rows: Iterable[tuple[Any, ...]], sign: int = 1) -> Mapping[int, Sequence[int]]:
        """Count rows that are inserted (or deleted: sign -1); return their sums by the start of their stretch."""
        found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        sealed.sums(rows, found)
        for start, (n, crc_sum, by_owner) in found.items():
            self.change((sealed.table.name, start), sign * n, sign * crc_sum, sign * by_owner)
        return found

    def change(self, key: Key, n: int, crc_sum: int, by_owner: int) -> None:
        """Count `n` rows more (or fewer), and what their sums are more (or less)."""
        change = self._changes[key]
        change[0] += n
        change[1] += crc_sum
        change[2] += by_owner

    @contextmanager
    def changing(self, sealed: Sealed, where: Sequence[str], values: Iterable[tuple[Any, ...]]) -> Iterator[None]:
        """Count the rows whose `where` columns equal one of `values` as they were before the block and after it."""
        values = list(dict.fromkeys(values))  # a row that is named twice is one row
        self.add(sealed, self.rows(sealed, where, values), -1)
        yield
        self.add(sealed, self.rows(sealed, where, values))

    @contextmanager
    def attempting(self) -> Iterator[None]:
        """Forget what the block counted if it raises: its changes are then undone, those before it are not."""
        changes, samples = {key: list(change) for key, change in self._changes.items()}, self.samples
        try:
            yield
        except BaseException:
            self._changes.clear()
            self._changes.update(changes)
            self.samples = samples
            raise

    def delete(self, sealed: Sealed, where: str, *values: Any) -> int:
        """Delete rows by a condition in SQL, and count them as deleted; returns how many."""
        execute, name = driver(self._connection).execute, sealed.table.name
        self.add(sealed, execute(f"SELECT {', '.join(sealed.columns)} FROM {name} WHERE {where}", values), -1)
        return execute(f"DELETE FROM {name} WHERE {where}", values).rowcount

    def store(self) -> bool:
        """Write the seals that changed; returns whether any did."""
        # Rows of several owners that change alike may leave the plain sum as it was.
        due = [
            (*key, n, crc, weighed % PRIME) for key, (n, crc, weighed) in self._changes.items() if n or crc or weighed
        ]
        self._changes.clear()
        self.samples.clear()
        if due:
            put_rows(
                self._connection,
                "INSERT INTO seal (name, ts, row_count, crc_sum, owner_sum) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (name, ts) DO UPDATE SET row_count = row_count + excluded.row_count, "
                f"crc_sum = crc_sum + excluded.crc_sum, owner_sum = (owner_sum + excluded.owner_sum) % {PRIME}",
                due,
            )
        return bool(due)

    def seal_all(self) -> None:
        """Seal everything as it is stored now, whatever the seals said before."""
        self.discard()
        self._connection.exec_driver_sql("DELETE FROM seal")
        for sealed in SEALED.values():
            self.add(sealed, self.rows(sealed))
        self.store()

    def rows(
        self, sealed: Sealed, where: Sequence[str] = (), values: Iterable[tuple[Any, ...]] = ((),)
    ) -> Iterator[tuple[Any, ...]]:
        """Rows whose `where` columns equal one of `values`; all without."""
        # The driver itself: there are a few hundred of these reads in a roll-up, each of one row.
        execute = driver(self._connection).execute
        sql = f"SELECT {', '.join(sealed.columns)} FROM {sealed.table.name}"
        if where:
            sql += " WHERE " + " AND ".join(f"{name} = ?" for name in where)
        for each in values:
            yield from execute(sql, each)


class Known:
    """CRC32 of each row of a small table that changes with every tick, so that none is read to be replaced.

    Its rows are all in one seal, and its key begins with the owner, where there is one.
    """

    def __init__(self, seals: Seals, sealed: Sealed) -> None:
        self._seals, self._sealed, self._n_keys = seals, sealed, len(sealed.keys)
        self._crcs: dict[tuple[Any, ...], int] | None = None

    def learn(self) -> None:
        """Read the table, unless it is known."""
        if self._crcs is None:
            self._crcs = {row[: self._n_keys]: row_crc(row) for row in self._seals.rows(self._sealed)}

    def forget(self) -> None:
        """Read the table again before the next change."""
        self._crcs = None

    def known_keys(self) -> list[tuple[Any, ...]]:
        """Keys of all rows."""
        return list(self._known())

    def missing(self, keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Those keys no row has, in order."""
        return sorted(set(keys) - self._known().keys())

    def put(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count rows that are inserted, or replace the ones with their keys."""
        crcs, n_keys = self._known(), self._n_keys
        for row in rows:
            before = crcs.get(row[:n_keys])
            crc = crcs[row[:n_keys]] = row_crc(row)
            self._change(row, before is None, crc - (before or 0))

    def drop(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Count rows that are deleted."""
        crcs = self._known()
        for each in keys:
            before = crcs.pop(each, None)
            if before is not None:
                self._change(each, -1, -before)

    def _change(self, key: tuple[Any, ...], n: int, crc: int) -> None:
        owner = 0 if self._sealed.owner is None else key[0]
        self._seals.change((self._sealed.table.name, 0), n, crc, crc * owner)

    def _known(self) -> dict[tuple[Any, ...], int]:
        if self._crcs is None:
            raise RuntimeError(f"{self._sealed.table.name} was not read before it changed")
        return self._crcs
