"""Checksums: how many rows a table holds in an interval, and two sums over their CRC32.

SQLite keeps no checksum of what it stores: a flipped bit is read as if it had been written. Therefore every row of
telemetry is counted in a checksum, which is changed in the transaction that changes the row. A row that is later read
with another content, is missing, or was never stored, no longer adds up; `store.integrity.verify` looks for that.

A checksum is a sum over rows, so that it does not depend on their order and changes without reading the others. A row
that goes is subtracted as it is read: if it was damaged meanwhile, the difference stays. The second sum weighs each
CRC32 by the row's owner: its difference divided by that of the first identifies whose row was damaged. The table keeps
the name `seal`, which the databases of all releases hold.
"""

from __future__ import annotations

import marshal
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, Insert, Select, Table, and_, bindparam, delete, event, func, insert, select
from sqlalchemy.sql.elements import ColumnElement

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import begun, explained, upsert
from pertoken.store.connect.sqlite import add_triggers, run_many
from pertoken.store.query.rollups import Query, fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import Value, Values

HOUR, DAY = 3600, 86_400
PRIME = 2**61 - 1
"""What the sums by owner are taken by: two of them still fit into an integer of SQLite's."""
Key = tuple[str, int]
"""(table, start of the interval)"""
Sum = tuple[int, int, int]
"""(rows, sum of their CRC32, sum of each CRC32 times its owner, modulo PRIME)"""
NOTHING: Sum = (0, 0, 0)
CHECKSUM_COLUMNS = tuple(column.name for column in t.seal.columns)


@dataclass(frozen=True, eq=False)
class ChecksummedTable:
    """Table whose rows are gathered into checksums."""

    table: Table
    owner: str | None
    """Column of whose row it is; None: nobody's."""
    interval_s: int = 0
    """Length of the interval of `ts` one checksum covers; 0: all of it."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns in the order in which their values are summed. One added later comes last and may be NULL."""
        return tuple(column.name for column in self.table.columns)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns of the primary key."""
        return tuple(column.name for column in self.table.primary_key)

    @cached_property
    def owners(self) -> Select[tuple[int]]:
        """Every owner there is, found by seeking from one to the next: reading all rows would grow with history."""
        owner = self.table.alias("seek").c[str(self.owner)]
        ids = select(func.min(owner).label("id")).cte("owners", recursive=True, nesting=True)
        after = select(func.min(owner)).where(owner > ids.c.id).scalar_subquery()
        ids = ids.union_all(select(after).where(ids.c.id.is_not(None)))
        return select(ids.c.id).where(ids.c.id.is_not(None))

    @cached_property
    def insert(self) -> Insert:
        """INSERT of one row."""
        return insert(self.table)

    @cached_property
    def rows(self) -> Query:
        """All rows."""
        return select(*self.table.columns)

    @cached_property
    def by_key(self) -> Query:
        """The row with a key, whose columns are its parameters."""
        columns = self.table.c
        return select(*columns).where(and_(*(columns[key] == bindparam(key) for key in self.keys)))

    def within(self, start: int | ColumnElement[int], until: int | ColumnElement[int]) -> ColumnElement[bool]:
        """Return rows with start <= ts < until, found by the key."""
        ts = self.table.c.ts
        return and_(self.table.c[str(self.owner)].in_(self.owners), ts >= start, ts < until)

    def sums(self, rows: Iterable[tuple[Any, ...]], into: defaultdict[int, list[int]]) -> None:
        """Count rows into [rows, sum, sum by owner (not yet modulo PRIME)], by the start of their interval."""
        interval_s, columns = self.interval_s, self.columns
        ts_position = columns.index("ts") if interval_s else 0
        owner = None if self.owner is None else columns.index(self.owner)
        start, total = None, into[0] if not interval_s else []
        for row in rows:
            if interval_s and row[ts_position] // interval_s * interval_s != start:
                start = row[ts_position] // interval_s * interval_s
                total = into[start]
            crc = row_crc(row)
            total[0] += 1
            total[1] += crc
            if owner is not None:
                total[2] += crc * int(row[owner])  # a damaged record may hold text


SAMPLES: tuple[ChecksummedTable, ...] = tuple(
    ChecksummedTable(table, next(iter(table.primary_key)).name, HOUR)
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
_SAMPLE_NAMES = frozenset(str(samples.table.name) for samples in SAMPLES)
ROLLED: tuple[ChecksummedTable, ...] = tuple(
    ChecksummedTable(table, next(iter(table.primary_key)).name, HOUR if seconds < HOUR else DAY)
    for rollup in t.ROLLUPS.values()
    for seconds, table in rollup.items()
)
UNTIMED: tuple[ChecksummedTable, ...] = tuple(
    ChecksummedTable(table, next(iter(table.primary_key)).name)
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
MARKS, OUTBOX, SPOOL = (
    ChecksummedTable(t.dirty, None),
    ChecksummedTable(t.outbox, "owner_id"),
    ChecksummedTable(t.spool, None),
)
EVENTS, QUARANTINE = ChecksummedTable(t.event, "event_id"), ChecksummedTable(t.quarantine, "owner_id")
CHECKSUMMED = {
    samples.table.name: samples for samples in (*SAMPLES, *ROLLED, *UNTIMED, EVENTS, MARKS, QUARANTINE, OUTBOX, SPOOL)
}
"""Every table of telemetry but the checksums themselves and `batch`, whose rows are chained."""


def row_crc(row: Values) -> int:
    """Return CRC32 of a row's values: int, str or None, in the order of its columns.

    They are encoded by `marshal` in its version 2, which never changed and holds no references; NULLs at the end do
    not count, so that a column added later leaves the sums of older rows as they are.
    """
    return crc32(marshal.dumps(row, 2)[5:].rstrip(b"N"))


def chained(previous: int, seq: int, ts: int, row_count: int, crc_sum: int) -> int:
    """Return CRC32 of a batch and, through `previous`, of every batch before it."""
    return crc32(marshal.dumps((seq, ts, row_count, crc_sum), 2), previous)


class Checksums:
    """The checksums of one writing connection to SQLite: each change of a row is counted in its own transaction.

    TEMP triggers count, so that whoever writes does not have to know of checksums. They pass the values of each row, as
    they were and as they are now, to a function of this process. Two kinds of change pass none, for speed:

    - Samples are counted by `insert_rows`, which has them at hand. CPU time of a commit of 80 rows over that
      of bare sqlite3 in the same run: 1.77 with each change named beside its statement (23 places), 1.78 so, and 1.91
      with triggers for samples too (`store.commit_ratio`: 1.58, 1.65 and 1.72 on a busy machine).
    - Rows with a time are deleted unread, by whole intervals together with their checksums (`delete_interval`).
    """

    def __init__(self, connection: Connection) -> None:
        """Count from now on what `connection` changes. Raises the driver's error."""
        self._connection = connection
        self._changes: defaultdict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._saved: list[dict[Key, list[int]]] = []
        for checksummed in CHECKSUMMED.values():
            if checksummed not in SAMPLES:
                self._count_by_triggers(checksummed)
        event.listen(connection, "savepoint", self._save)
        event.listen(connection, "rollback_savepoint", self._go_back)
        event.listen(connection, "release_savepoint", self._release)
        connection.info[Checksums] = self

    def _count_by_triggers(self, checksummed: ChecksummedTable) -> None:
        name = checksummed.table.name
        added, removed = (_counting(checksummed, sign, self._changes) for sign in (1, -1))
        width = len(checksummed.columns)

        def changed(*values: Value) -> None:
            removed(*values[:width])
            added(*values[width:])

        old, new = (", ".join(f"{state}.{column}" for column in checksummed.columns) for state in ("OLD", "NEW"))
        # SQLite calls one function for both rows of an update: each call costs as much as what it counts.
        triggers = {"INSERT": f"SELECT added_{name}({new});", "UPDATE": f"SELECT changed_{name}({old}, {new});"}
        if not checksummed.interval_s:
            triggers["DELETE"] = f"SELECT removed_{name}({old});"
        functions = {f"added_{name}": added, f"removed_{name}": removed, f"changed_{name}": changed}
        add_triggers(self._connection, "telemetry", name, functions, triggers)

    def count(self, checksummed: ChecksummedTable, rows: Iterable[Values]) -> None:
        """Count rows as added, of a table that has no triggers."""
        sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        checksummed.sums(rows, sums)
        for start, values in sums.items():
            change = self._changes[str(checksummed.table.name), start]
            for i, value in enumerate(values):
                change[i] += value

    def _save(self, *_: object) -> None:
        self._saved.append({key: list(change) for key, change in self._changes.items()})

    def _go_back(self, *_: object) -> None:
        self._changes.clear()
        self._changes.update(self._saved.pop())

    def _release(self, *_: object) -> None:
        self._saved.pop()

    def discard(self) -> None:
        """Forget what a transaction that was rolled back had changed."""
        self._changes.clear()
        self._saved.clear()

    def store(self) -> tuple[bool, dict[int, tuple[int, int]]]:
        """Write the checksums that changed. Return whether any did, and (samples, sum of their CRC32) by their hour."""
        # Rows of several owners that change alike may leave the plain sum as it was.
        due = [
            (*key, n, crc, weighed % PRIME) for key, (n, crc, weighed) in self._changes.items() if n or crc or weighed
        ]
        samples: dict[int, tuple[int, int]] = {}
        for name, start, n, crc, _ in due:
            if name in _SAMPLE_NAMES:
                counted = samples.get(start, (0, 0))
                samples[start] = counted[0] + n, counted[1] + crc
        self._changes.clear()
        run_many(self._connection, _add_to_checksum(), CHECKSUM_COLUMNS, due)
        return bool(due), samples

    def delete_interval(self, checksummed: ChecksummedTable, start: int, until: int) -> int:
        """Delete the rows of whole intervals with start <= ts < until, and their checksums; return how many rows."""
        # By owner: a table is keyed by that first, and would be read whole for its oldest rows.
        deleted = self._connection.execute(delete(checksummed.table).where(checksummed.within(start, until))).rowcount
        seal = t.seal.c
        self._connection.execute(
            delete(t.seal).where(seal.name == str(checksummed.table.name), seal.ts >= start, seal.ts < until)
        )
        return deleted

    def checksum_all(self) -> None:
        """Compute all checksums from what is stored now, whatever they were before."""
        self.discard()
        self._connection.execute(delete(t.seal))
        for checksummed in CHECKSUMMED.values():
            self.count(checksummed, fetch(self._connection, checksummed.rows))
        self.store()


def insert_rows(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert rows, given as the values of all columns, and count samples among them."""
    checksummed = CHECKSUMMED[table.name]
    run_many(connection, checksummed.insert, checksummed.columns, rows)
    if checksummed in SAMPLES and Checksums in connection.info:
        connection.info[Checksums].count(checksummed, rows)


def _counting(checksummed: ChecksummedTable, sign: int, changes: defaultdict[Key, list[int]]) -> Callable[..., None]:
    """Return a function that counts a row, given by its values, as added (sign 1) or removed (-1)."""
    name, interval_s, columns = str(checksummed.table.name), checksummed.interval_s, checksummed.columns
    ts_position = columns.index("ts") if interval_s else 0
    owner = None if checksummed.owner is None else columns.index(checksummed.owner)

    def count(*row: Any) -> None:
        crc = sign * row_crc(row)
        change = changes[name, row[ts_position] // interval_s * interval_s if interval_s else 0]
        change[0] += sign
        change[1] += crc
        if owner is not None:
            change[2] += crc * int(row[owner])  # a damaged record may hold text

    return count


@cache
def _add_to_checksum() -> Insert:
    statement = upsert("sqlite", t.seal)
    seal, more = t.seal.c, statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["name", "ts"],
        set_={
            "row_count": seal.row_count + more.row_count,
            "crc_sum": seal.crc_sum + more.crc_sum,
            "owner_sum": (seal.owner_sum + more.owner_sum) % PRIME,
        },
    )


_SIZE = 64
"""Bytes of the file: within one sector, so that it is never half written."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A batch that was stored: its sequence and its `ts`."""

    seq: int
    ts: int


class HighWaterMark:
    """The high-water mark of one database file, open for writing by its one writer."""

    def __init__(self, database: Path) -> None:
        """Open it, and make it where there is none. Raises OSError."""
        self._file = high_water_mark_file(database)
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def write(self, last: Acknowledged) -> None:
        """Record the last batch stored. Raises OSError."""
        os.pwrite(self._fd, _line(last), 0)

    def flush(self) -> None:
        """Wait until the disk has it. Raises OSError."""
        os.fdatasync(self._fd)

    def restore(self, last: Acknowledged) -> bool:
        """Make it again if its file was deleted or replaced; return whether it was. Raises OSError."""
        try:
            if os.path.samestat(self._file.stat(), os.fstat(self._fd)):
                return False
        except FileNotFoundError:
            pass
        os.close(self._fd)
        self._open()
        self.write(last)
        return True

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            os.close(self._fd)


def high_water_mark_file(database: Path) -> Path:
    """Return the file that holds the high-water mark of a database file."""
    return database.with_suffix(".witness")


MISSING = (
    "the high-water mark is missing or unreadable, so that a loss of the newest batches could not be noticed. This is "
    "expected where the database was copied by hand or restored from a backup without it; else find out what deleted "
    "it. An agent that runs here makes a new one"
)


def acknowledged(database: Path) -> Acknowledged | None:
    """Return the last batch acknowledged for a database file; None where its mark is missing or unreadable."""
    try:
        text = high_water_mark_file(database).read_bytes()
    except OSError:
        return None
    try:
        seq, ts, _ = text.split()
        mark = Acknowledged(int(seq), int(ts))
    except ValueError:
        return None
    return mark if _line(mark) == text else None


def _line(last: Acknowledged) -> bytes:
    words = f"{last.seq} {last.ts}".encode()
    return (words + f" {crc32(words):08x}".encode()).ljust(_SIZE - 1) + b"\n"


_COLUMNS = tuple(column.name for column in t.batch.columns)
_INSERT = insert(t.batch)


class Batches:
    """The transactions of the one writer of a folder, numbered without gaps."""

    def __init__(self, location: StoreLocation, connection: Connection) -> None:
        """Go on where the last writer ended. Raises StoreError."""
        self._location, self._connection = location, connection
        with explained(location):
            self.checksums = Checksums(connection)
        self.last = Acknowledged(0, 0)
        """The last batch stored; sequence 0 before the first."""
        self._chain = 0
        self.lost: tuple[Acknowledged, Acknowledged] | None = None
        """(last batch found, last batch acknowledged) where the second is not there any more."""
        with explained(location), connection.begin():
            newest = connection.execute(select(t.batch).order_by(t.batch.c.seq.desc()).limit(1)).first()
            # Rows of a schema without checksums count as they are found, once.
            counted = connection.execute(select(t.seal.c.ts).limit(1)).first() is not None
            if newest is None and not counted and connection.execute(select(t.host.c.host_id).limit(1)).first():
                self.checksums.checksum_all()
        if newest is not None:
            self.last, self._chain = Acknowledged(newest.seq, newest.ts), newest.chain
        acknowledged_batch = acknowledged(location.file("telemetry"))
        if acknowledged_batch is not None and acknowledged_batch.seq > self.last.seq:
            # The gap stays in the sequence: who checks it later finds it too.
            self.lost, self.last = (self.last, acknowledged_batch), acknowledged_batch
        self.high_water_mark_missing = acknowledged_batch is None and newest is not None
        try:
            self._high_water_mark = HighWaterMark(location.file("telemetry"))
            if self.high_water_mark_missing:
                self._high_water_mark.write(self.last)
        except OSError as error:
            raise StoreError(f"{location}: cannot be written: {error.strerror}") from None

    @contextmanager
    def transaction(self, ts: int | None = None) -> Iterator[None]:
        """One transaction with the checksums of what changes in it and its place in the sequence, a batch.

        Samples of other hours than that of `ts` have a batch for each hour ahead of it, so that the batches of an hour
        count the rows of that hour. Raises StoreError, with nothing of it stored. Without the `ts` of a tick it is that
        of the last one, and where nothing changed there is no batch.
        """
        checksums, done, chain = self.checksums, self.last, self._chain
        try:
            with explained(self._location), begun(self._connection):
                yield
                changed, samples = checksums.store()
                if changed or ts is not None:
                    last_ts = done.ts if ts is None else ts
                    counted = samples.pop(last_ts // HOUR * HOUR, (0, 0))
                    batches = []
                    for batch_ts, (n, crc_sum) in (*sorted(samples.items()), (last_ts, counted)):
                        done = Acknowledged(done.seq + 1, batch_ts)
                        chain = chained(chain, done.seq, done.ts, n, crc_sum)
                        batches.append((done.seq, done.ts, n, crc_sum, chain))
                    run_many(self._connection, _INSERT, _COLUMNS, batches)
        except BaseException:
            checksums.discard()
            raise
        if done is not self.last:
            self.last, self._chain = done, chain
            self._high_water_mark.write(done)

    def flush(self) -> bool:
        """Flush the high-water mark to the disk, now and then: no transaction waits for that.

        Return whether its file had been deleted, and was made again.
        """
        restored = self._high_water_mark.restore(self.last)
        self._high_water_mark.flush()
        return restored

    def close(self) -> None:
        """Flush and close the high-water mark."""
        self._high_water_mark.close()
