"""Verification: read a database again, compare it with its checksums, and report table, owner and time of differences.

A pass consists of small steps, the pages of a table or some hundred rows, each a separate read, so that it can run
beside the writer. Rows may change between two steps: a checksum that seems wrong is read again with its rows, in one
snapshot, before it is reported. Front door: `verify`. The checks of a file before it is opened are at the end.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, or_, select, tuple_
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.elements import ColumnElement

from pertoken.errors import CorruptStore, StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import REVISIONS, reading, version_table
from pertoken.store.connect.sqlite import check_pages, columns
from pertoken.store.integrity.checksums import (
    CHECKSUMMED,
    HOUR,
    MISSING,
    NOTHING,
    PRIME,
    SAMPLES,
    Acknowledged,
    ChecksummedTable,
    acknowledged,
    chained,
    high_water_mark_file,
)
from pertoken.store.query.rollups import Query, fetch
from pertoken.store.schema import telemetry as t
from pertoken.units import format_utc

STEP_ROWS = 500
"""Rows read in one step, which takes some milliseconds."""
_SUMS = (t.seal.c.row_count, t.seal.c.crc_sum, t.seal.c.owner_sum)


@dataclass(frozen=True, slots=True)
class StoredDifference:
    """Difference from the stored rows. `owner_id` and the time are None if unknown or not applicable."""

    table: str
    text: str
    owner_id: int | None = None
    start: int | None = None
    end: int | None = None
    damaged: bool = False
    """Whether pages of the file are damaged, so that nothing may be written to it."""

    def __str__(self) -> str:
        """`device_1m of 5, 2026-11-21 10:00Z to 11:00Z: 59 of 60 rows are there`."""
        owner = "" if self.owner_id is None else f" of {self.owner_id}"
        time = "" if self.start is None or self.end is None else f", {format_utc(self.start)} to {format_utc(self.end)}"
        return f"{self.table}{owner}{time}: {self.text}"


def verify(location: StoreLocation) -> Iterator[StoredDifference | None]:
    """Check pages, batches and every row of the telemetry of a folder. Yield differences, and None after other steps.

    A damaged file raises nothing: an unreadable table is a difference.
    """
    high_water_mark = acknowledged(location.file("telemetry"))  # before the database is read: it is never ahead of it
    try:
        with reading(location, "telemetry").connect() as connection:
            yield from _VerificationPass(connection).run(high_water_mark)
    except Exception as error:  # the driver's, or of a library that met a damaged schema
        yield StoredDifference("telemetry.db", f"cannot be read: {_first_line(error)}", damaged=_is_page_damage(error))


def steps(location: StoreLocation) -> int:
    """Return the approximate number of steps of a pass; 1 if unknown."""
    try:
        with reading(location, "telemetry").connect() as connection:
            rows = connection.execute(select(func.sum(t.seal.c.row_count))).scalar() or 0
    except (SQLAlchemyError, sqlite3.Error):
        return 1
    return int(rows) // STEP_ROWS + 3 * len(CHECKSUMMED)


class _VerificationPass:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, high_water_mark: Acknowledged | None) -> Iterator[StoredDifference | None]:
        yield from self._revision()
        for name in (*CHECKSUMMED, t.batch.name, t.seal.name):
            yield from self._guarded(name, self._pages(name))
        yield from self._guarded(t.batch.name, self._batches(high_water_mark))
        yield from self._guarded(t.seal.name, self._checksums())
        for checksummed in CHECKSUMMED.values():
            yield from self._guarded(checksummed.table.name, self._rows(checksummed))
        yield from self._guarded(t.batch.name, self._batches_and_checksums())

    def _guarded(self, name: str, steps: Iterator[StoredDifference | None]) -> Iterator[StoredDifference | None]:
        try:
            yield from steps
        # A damaged record may hold a value of another type, or text that is none.
        except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
            yield StoredDifference(name, f"cannot be read: {_first_line(error)}", damaged=_is_page_damage(error))

    def _revision(self) -> Iterator[StoredDifference | None]:
        rows = self._fetch(_REVISION)
        if rows != [(REVISIONS["telemetry"][-1],)]:
            yield StoredDifference("alembic_version", f"names the schema {rows!r}")

    def _pages(self, name: str) -> Iterator[StoredDifference | None]:
        problems = 0
        for line in check_pages(self._connection, "telemetry", name):
            problems += 1
            # A value that may not be NULL shows in the checksum too, and the file can be written on.
            yield StoredDifference(name, line, damaged=": NULL value" not in line)
        if not problems:
            yield None

    def _batches(self, high_water_mark: Acknowledged | None) -> Iterator[StoredDifference | None]:
        name = t.batch.name
        previous: tuple[int, ...] | None = None
        while True:
            batches = self._fetch(_BATCHES_AFTER, seq=previous[0] if previous else -1)
            for row in batches:
                seq, ts, row_count, crc_sum, chain = row
                if previous is not None and seq != previous[0] + 1:
                    if (seq,) != self._fetch(_FIRST_SEQ)[0]:  # else deleted while we read
                        missing = f"batches {previous[0] + 1} to {seq - 1} are missing"
                        yield StoredDifference(name, missing, None, previous[1], ts)
                    if seq <= previous[0]:
                        return
                elif previous is not None and chain != chained(previous[4], seq, ts, row_count, crc_sum):
                    yield StoredDifference(name, f"batch {seq} is not as it was stored", None, previous[1], ts)
                previous = row
            if len(batches) < STEP_ROWS:
                break
            yield None
        last = Acknowledged(*previous[:2]) if previous is not None else Acknowledged(0, 0)
        if high_water_mark is None and previous is not None:
            yield StoredDifference("telemetry.witness", MISSING)
        if high_water_mark is not None and high_water_mark.seq > last.seq:
            missing = f"batches {last.seq + 1} to {high_water_mark.seq} were acknowledged and are missing"
            yield StoredDifference(name, missing, None, last.ts or high_water_mark.ts, high_water_mark.ts)

    def _checksums(self) -> Iterator[StoredDifference | None]:
        """Check that every checksum belongs to a known table and the start of an interval, in order."""
        previous = ("", 0)
        for name, ts in self._fetch(_CHECKSUM_KEYS):
            checksummed = CHECKSUMMED.get(name)
            is_start = checksummed is not None and (
                ts % checksummed.interval_s == 0 if checksummed.interval_s else ts == 0
            )
            if not is_start or (name, ts) <= previous:
                yield StoredDifference(t.seal.name, f"one of {name!r} at {format_utc(ts)} is of nothing")
            previous = name, ts
        yield None

    def _rows(self, checksummed: ChecksummedTable) -> Iterator[StoredDifference | None]:
        """Read all rows in the order of the key, sum them, and compare the sums with the checksums."""
        name, keys = checksummed.table.name, checksummed.keys
        positions = [checksummed.columns.index(key) for key in keys]
        first, after = _row_pages(checksummed)
        counted: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        last_key: tuple[object, ...] | None = None
        while True:
            rows = self._fetch(after, **dict(zip(keys, last_key, strict=True))) if last_key else self._fetch(first)
            for row in rows:
                row_key = tuple([row[position] for position in positions])
                if last_key is not None and row_key <= last_key:
                    yield StoredDifference(name, "rows are out of order")
                    return
                last_key = row_key
            checksummed.sums(rows, counted)
            yield None
            if len(rows) < STEP_ROWS:
                break
        stored = {ts: sums for ts, *sums in self._fetch(_CHECKSUMS_OF, name=name)}
        for start in sorted(counted.keys() | stored.keys()):
            row_count, crc_sum, by_owner = counted.get(start, NOTHING)
            if stored.get(start, [*NOTHING]) != [row_count, crc_sum, by_owner % PRIME]:
                yield self._confirmed(checksummed, start)

    def _confirmed(self, checksummed: ChecksummedTable, start: int) -> StoredDifference | None:
        """Compare one checksum with its rows again, in one snapshot; None if they agree now."""
        name, interval_s = checksummed.table.name, checksummed.interval_s
        end = start + interval_s if interval_s else None
        counted: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        with self._connection.begin():
            stored = next(iter(self._fetch(_ONE_CHECKSUM, name=name, ts=start)), NOTHING)
            checksummed.sums(self._fetch(_rows_of(checksummed), start=start, until=end), counted)
            excess_rows, crc_sum, by_owner = (
                counted_sum - stored_sum for counted_sum, stored_sum in zip(counted[start], stored, strict=True)
            )
            if excess_rows == crc_sum == 0 and by_owner % PRIME == 0:
                return None
            if checksummed.owner and (crc_sum == 0 or by_owner % PRIME == 0):
                # A changed row changes both sums: with one difference alone, the checksum itself is damaged.
                text = f"that of {name} is not as it was stored"
                return StoredDifference(t.seal.name, text, None, start if end else None, end)
            owner_id = self._owner(checksummed, crc_sum, by_owner) if checksummed.owner else None
        present = counted[start][0]
        text = "rows are not as they were stored"
        if excess_rows:
            text = f"{present} are there, {present - excess_rows} were stored"
        return StoredDifference(name, text, owner_id, start if end else None, end)

    def _owner(self, checksummed: ChecksummedTable, crc_sum: int, by_owner: int) -> int | None:
        """Return the owner of the changed rows from two sums' differences; None if rows of several owners changed."""
        if crc_sum % PRIME == 0:
            return None
        owner_modulo = by_owner * pow(crc_sum, -1, PRIME) % PRIME
        tables = [
            checksummed,
            *(table for table in CHECKSUMMED.values() if table.owner == checksummed.owner and table is not checksummed),
        ]
        for table in tables:
            for (owner_id,) in self._fetch(table.owners):
                if owner_id % PRIME == owner_modulo:
                    return int(owner_id)
        return None

    def _batches_and_checksums(self) -> Iterator[StoredDifference | None]:
        """Compare rows and CRC sums of the batches of each hour with those of its checksums.

        Three kinds of hours are skipped. The first hour may be deleted in part, or older than the batches. After the
        clock was set back, batches of a deleted hour remain behind later ones: hours up to the oldest of the tables
        with a row in each tick are skipped. Hours after the last batch hold ticks stored under a wrong clock.
        """
        set_back = self._fetch(_CLOCK_SET_BACK)
        for (hour,) in self._fetch(_BATCH_HOURS)[1:]:
            yield None
            with self._connection.begin():
                ((first,),) = self._fetch(_FIRST_TS)
                if set_back:
                    oldest = [ts for (ts,) in self._fetch(_OLDEST_OF_TICK_TABLES)]
                    first = max((ts for ts in (first, *oldest) if ts is not None), default=None)
                ((last,),) = self._fetch(_LAST_TS)
                ticks = self._fetch(_TICKS, start=hour, until=hour + HOUR)
                checksummed = self._fetch(_CHECKSUMMED_TICKS, ts=hour)
            if first is not None and first < hour <= last and ticks != checksummed:
                yield StoredDifference(t.batch.name, "ticks and the rows sealed differ", None, hour, hour + HOUR)

    def _fetch(self, query: Query, **values: object) -> Sequence[tuple[Any, ...]]:
        return fetch(self._connection, query, values)


_REVISION = select(version_table("telemetry").c.version_num)
_BATCH, _CHECKSUM = t.batch.c, t.seal.c
_BATCHES_AFTER = select(*t.batch.columns).where(_BATCH.seq > bindparam("seq")).order_by(_BATCH.seq).limit(STEP_ROWS)
_FIRST_SEQ = select(func.min(_BATCH.seq))
_FIRST_TS = select(func.min(_BATCH.ts)).where(_BATCH.ts > 0)
_LAST_TS = select(_BATCH.ts).order_by(_BATCH.seq.desc()).limit(1)
_NEXT = t.batch.alias("next")
_CLOCK_SET_BACK = select(_BATCH.seq).join(_NEXT, (_NEXT.c.seq == _BATCH.seq + 1) & (_NEXT.c.ts < _BATCH.ts)).limit(1)
_BATCH_HOURS = (
    # Before the first tick a batch has no time.
    select((_BATCH.ts // HOUR * HOUR).label("hour")).where(_BATCH.ts > 0).distinct().order_by("hour")
)
_TICKS = select(func.sum(_BATCH.row_count), func.sum(_BATCH.crc_sum)).where(
    _BATCH.ts >= bindparam("start"), _BATCH.ts < bindparam("until")
)
_CHECKSUM_KEYS = select(_CHECKSUM.name, _CHECKSUM.ts)
_CHECKSUMS_OF = select(_CHECKSUM.ts, *_SUMS).where(_CHECKSUM.name == bindparam("name"))
_ONE_CHECKSUM = select(*_SUMS).where(_CHECKSUM.name == bindparam("name"), _CHECKSUM.ts == bindparam("ts"))


def _one_of(*tables: Table) -> ColumnElement[bool]:
    # Not IN: SQLAlchemy renders its list again for each use, but `fetch` caches the text of a statement.
    return or_(*(_CHECKSUM.name == str(table.name) for table in tables))


_CHECKSUMMED_TICKS = select(
    func.coalesce(func.sum(_CHECKSUM.row_count), 0), func.coalesce(func.sum(_CHECKSUM.crc_sum), 0)
).where(_CHECKSUM.ts == bindparam("ts"), _one_of(*(samples.table for samples in SAMPLES)))
_OF_TICK_TABLES = _one_of(t.device_sample, t.host_sample, t.agent_sample)
_OLDEST_OF_TICK_TABLES = select(func.min(_CHECKSUM.ts)).where(_OF_TICK_TABLES).group_by(_CHECKSUM.name)


@cache
def _row_pages(checksummed: ChecksummedTable) -> tuple[Query, Query]:
    """Return the query of the first page of rows by key, and that of the page after a key."""
    keys = [checksummed.table.c[key] for key in checksummed.keys]
    first = checksummed.rows.order_by(*keys).limit(STEP_ROWS)
    return first, first.where(tuple_(*keys) > tuple_(*(bindparam(key.name, type_=key.type) for key in keys)))


@cache
def _rows_of(checksummed: ChecksummedTable) -> Query:
    """Return the query of the rows in one interval; of all rows in a table without time."""
    return (
        checksummed.rows.where(checksummed.within(bindparam("start"), bindparam("until")))
        if checksummed.interval_s
        else checksummed.rows
    )


def _is_page_damage(error: Exception) -> bool:
    origin = getattr(error, "orig", None) or error
    return getattr(origin, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


_QUARANTINE_MARK = "-damaged-"


def quarantine_database(location: StoreLocation, now_ts: int) -> Path:
    """Rename the telemetry database of a folder with its WAL and high-water mark, and return its new path.

    No process may have it open. Raises StoreError if it cannot be renamed.
    """
    database = location.file("telemetry")
    stamp = datetime.fromtimestamp(now_ts, UTC).strftime("%Y%m%dT%H%M%SZ")
    quarantined, number = database.with_name(f"{database.stem}{_QUARANTINE_MARK}{stamp}.db"), 1
    while quarantined.exists():
        number += 1
        quarantined = database.with_name(f"{database.stem}{_QUARANTINE_MARK}{stamp}-{number}.db")
    moves = [(Path(f"{database}{suffix}"), Path(f"{quarantined}{suffix}")) for suffix in ("-wal", "-shm")]
    moves += [(high_water_mark_file(database), high_water_mark_file(quarantined)), (database, quarantined)]
    try:
        for source, target in moves:
            if source.exists():
                source.rename(target)
    except OSError as error:
        raise StoreError(f"{location}: its damaged telemetry cannot be quarantined: {error.strerror}") from None
    return quarantined


def quarantined_databases(location: StoreLocation) -> list[Path]:
    """Return quarantined databases of a folder, oldest first; none if this user may not enter it."""
    database = location.file("telemetry")
    try:
        return sorted(database.parent.glob(f"{database.stem}{_QUARANTINE_MARK}*.db"))
    except PermissionError:
        return []


_MAGIC = b"SQLite format 3\0"
_REVISION_FORM = re.compile(r"[0-9]{4}")


def check_header(location: StoreLocation) -> None:
    """Check the header of the telemetry file, as SQLite's file format has it. Raises CorruptStore."""
    file = location.file("telemetry")
    try:
        with file.open("rb") as opened:
            header = opened.read(100)
    except OSError:
        return  # opening the database reports the reason
    if not header:
        return  # created, but not written yet
    page_bytes = int.from_bytes(header[16:18])
    usable = (
        header.startswith(_MAGIC)
        and (page_bytes == 1 or (page_bytes >= 512 and page_bytes.bit_count() == 1))
        and header[18] in (1, 2)  # a rollback journal or a log, to write...
        and header[19] in (1, 2)  # ...and to read
        and header[21:24] == bytes((64, 32, 32))
        and int.from_bytes(header[44:48]) <= 4  # schema format
        and int.from_bytes(header[56:60]) <= 1  # UTF-8; 0 before there is a table
    )
    if not usable:
        raise CorruptStore(f"{file}: its header is damaged")


def check_revision_readable(location: StoreLocation, connection: Connection, revision: str | None) -> None:
    """Check that a revision is well-formed, or missing in a database without tables. Raises CorruptStore."""
    if revision is not None and not _REVISION_FORM.fullmatch(revision):
        raise CorruptStore(f"{location}: its schema is damaged: it names the revision {revision!r}")
    if revision is None and columns(connection, "telemetry"):
        raise CorruptStore(f"{location}: its schema is damaged: it has tables and names no revision")


def check_schema(location: StoreLocation, connection: Connection) -> None:
    """Check that every telemetry table exists with all its columns. Raises CorruptStore for the first that does not."""
    stored_columns = columns(connection, "telemetry")
    for table in t.metadata.sorted_tables:
        missing = [column.name for column in table.columns if column.name not in stored_columns.get(table.name, ())]
        if missing:
            has_table = table.name in stored_columns
            defect = f"{table.name} has no column {missing[0]}" if has_table else f"has no table {table.name}"
            raise CorruptStore(f"{location}: its schema is damaged: {defect}")


def has_schema(location: StoreLocation, connection: Connection) -> bool:
    """Return whether every table of this version is there, whatever revision the database names."""
    try:
        check_schema(location, connection)
    except CorruptStore:
        return False
    return True
