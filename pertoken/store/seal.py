"""Seals: how many rows a table holds of an owner in a stretch of time, and the sum of their CRC32.

SQLite keeps no checksum of what it stores: a flipped bit is read as if it had been written. Every row of telemetry is
therefore counted in a seal, changed in the same transaction by what the row adds and takes away. A row that is later
read with another content, is gone, or came from nowhere, no longer adds up; `store.verify` looks for that.

The seal of a row is the sum over rows, so that it does not depend on their order, and is changed without reading the
rest. What is taken away is taken as it is read: a row that was damaged meanwhile leaves its difference behind.
"""

import marshal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, Table

from pertoken.store import telemetry as t
from pertoken.store.open import put_rows

HOUR, DAY = 3600, 86_400
Key = tuple[str, int, int]
"""(table, owner_id, start of the stretch)"""


@dataclass(frozen=True, slots=True, eq=False)
class Sealed:
    """How the rows of one table are gathered into seals."""

    table: Table
    owner: str | None
    """Column of whose row it is; None: all in one."""
    span_s: int = 0
    """Length of the stretch of `ts` one seal covers; 0: all of it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns in the order in which their values are summed. One added later comes last and may be NULL."""
        return tuple(column.name for column in self.table.columns)

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of the primary key."""
        return tuple(column.name for column in self.table.primary_key)


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
        t.event,
    )
)
MARKS = Sealed(t.dirty, None)
SEALED = {each.table.name: each for each in (*SAMPLES, *ROLLED, *UNTIMED, MARKS)}
"""Every table of telemetry but the seals themselves and `batch`, whose rows are chained."""


@cache
def key_of(sealed: Sealed) -> Callable[[Sequence[Any]], Key]:
    """What tells which seal a row of a table belongs to."""
    name, span_s, columns = sealed.table.name, sealed.span_s, sealed.columns
    if sealed.owner is None:
        return lambda row: (name, 0, 0)
    owner = columns.index(sealed.owner)
    if not span_s:
        return lambda row: (name, row[owner], 0)
    ts = columns.index("ts")
    return lambda row: (name, row[owner], row[ts] // span_s * span_s)


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
        self._changes: defaultdict[Key, list[int]] = defaultdict(lambda: [0, 0])
        self.counters = Known(self, SEALED[t.counter_state.name])
        self.marks = Known(self, SEALED[t.dirty.name])
        self.samples = (0, 0)
        """Samples inserted in this transaction, and the sum of their CRC32."""

    def begin(self) -> None:
        """Know what is there, before a transaction changes it."""
        self.counters.learn()
        self.marks.learn()

    def discard(self) -> None:
        """Forget what a transaction that was rolled back had gathered."""
        self._changes.clear()
        self.samples = (0, 0)
        self.counters.forget()
        self.marks.forget()

    def add_samples(self, sealed: Sealed, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count samples that are inserted, also as such."""
        n, crc_sum = self.add(sealed, rows)
        self.samples = (self.samples[0] + n, self.samples[1] + crc_sum)

    def add(self, sealed: Sealed, rows: Iterable[tuple[Any, ...]], sign: int = 1) -> tuple[int, int]:
        """Count rows that are inserted (or deleted: sign -1); returns (rows, sum of their CRC32)."""
        n = total = 0
        key, changes = key_of(sealed), self._changes
        for row in rows:
            crc = row_crc(row)
            change = changes[key(row)]
            change[0] += sign
            change[1] += sign * crc
            n += 1
            total += crc
        return n, total

    def change(self, key: Key, n: int, crc: int) -> None:
        """Count `n` rows more (or fewer) whose CRC32 add up to `crc`."""
        change = self._changes[key]
        change[0] += n
        change[1] += crc

    @contextmanager
    def changing(self, sealed: Sealed, where: Sequence[str], values: Iterable[tuple[Any, ...]]) -> Iterator[None]:
        """Count the rows whose `where` columns equal one of `values` as they were before the block and after it."""
        values = list(values)
        self.add(sealed, self.rows(sealed, where, values), -1)
        yield
        self.add(sealed, self.rows(sealed, where, values))

    def store(self) -> bool:
        """Write the seals that changed; returns whether any did."""
        due = [(*key, n, crc) for key, (n, crc) in self._changes.items() if n or crc]
        self._changes.clear()
        self.samples = (0, 0)
        if due:
            put_rows(
                self._connection,
                "INSERT INTO seal (name, owner_id, ts, row_count, crc_sum) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (name, owner_id, ts) DO UPDATE SET "
                "row_count = row_count + excluded.row_count, crc_sum = crc_sum + excluded.crc_sum",
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
        execute = self._connection.connection.driver_connection.execute  # type: ignore[union-attr]
        sql = f"SELECT {', '.join(sealed.columns)} FROM {sealed.table.name}"
        if where:
            sql += " WHERE " + " AND ".join(f"{name} = ?" for name in where)
        for each in values:
            yield from execute(sql, each)


class Known:
    """CRC32 of each row of a small table that changes with every tick, so that none is read to be replaced."""

    def __init__(self, seals: Seals, sealed: Sealed) -> None:
        self._seals, self._sealed = seals, sealed
        self._crcs: dict[tuple[Any, ...], int] | None = None

    def learn(self) -> None:
        """Read the table, unless it is known."""
        if self._crcs is None:
            n_keys = len(self._sealed.keys)
            self._crcs = {row[:n_keys]: row_crc(row) for row in self._seals.rows(self._sealed)}

    def forget(self) -> None:
        """Read the table again before the next change."""
        self._crcs = None

    def missing(self, keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Those keys no row has, in order."""
        return sorted(set(keys) - self._known().keys())

    def put(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count rows that are inserted, or replace the ones with their keys."""
        crcs, key, n_keys = self._known(), key_of(self._sealed), len(self._sealed.keys)
        for row in rows:
            before = crcs.get(row[:n_keys])
            crc = crcs[row[:n_keys]] = row_crc(row)
            self._seals.change(key(row), before is None, crc - (before or 0))

    def drop(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Count rows that are deleted."""
        crcs, key = self._known(), key_of(self._sealed)
        for each in keys:
            before = crcs.pop(each, None)
            if before is not None:
                self._seals.change(key(each), -1, -before)

    def _known(self) -> dict[tuple[Any, ...], int]:
        if self._crcs is None:
            raise RuntimeError(f"{self._sealed.table.name} was not read before it changed")
        return self._crcs
