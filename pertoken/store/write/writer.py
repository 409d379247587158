"""Writing telemetry: one connection, one transaction for a tick, dirty marks in that same transaction."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.sql.elements import ColumnElement

from pertoken.errors import StoreError
from pertoken.store.connect import sqlite
from pertoken.store.connect.bulk import copy_rows
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import check_revision, explained, revision, writing
from pertoken.store.integrity.batches import Batches
from pertoken.store.integrity.checksums import SAMPLES, ChecksummedTable, insert_rows
from pertoken.store.integrity.high_water_mark import Acknowledged
from pertoken.store.integrity.schema_check import check_header, check_schema
from pertoken.store.query.fast_rows import fetch
from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.store.write import outbox, quarantine
from pertoken.store.write.dirty import mark
from pertoken.store.write.fitting import UNFIT, fitted
from pertoken.store.write.quarantine import Bucket
from pertoken.store.write.restored_state import RestoredState
from pertoken.store.write.rollup import ROLLED_FROM, roll_up
from pertoken.store.write.tick import TickWriter
from pertoken.units import format_utc

EVENTS_AT_ONCE = 2_000
"""Events deleted in one transaction: some milliseconds beside a tick."""

MAX_AHEAD_S = 31 * 86_400
"""Rows further ahead of the last tick than this are not waited for."""


class Writer:
    """The one writer of a folder's telemetry. All calls come from the thread that opened it."""

    def __init__(self, location: StoreLocation, max_bytes: int | None = None) -> None:
        """Open `location` for writing; its data file does not grow beyond `max_bytes`.

        Raises StoreError if it cannot be opened or is of another schema, CorruptStore if it is damaged.
        """
        self.location = location
        if location.url is None:
            check_header(location)
        with explained(location):
            engine = writing(location, "telemetry")
            check_revision(revision(engine, "telemetry"), "telemetry", location)
            self._connection = engine.connect()
        self._dialect = self._connection.dialect.name
        self._unshipped = 0
        self._quarantined: list[Bucket] = []
        self._retried = False
        self._batches: Batches | None = None
        """Of SQLite only: PostgreSQL keeps checksums of its pages."""
        try:
            if self._dialect == "sqlite":
                with explained(location):
                    check_schema(location, self._connection)
                    sqlite.limit_size(self._connection, max_bytes)
                self._batches = Batches(location, self._connection)
            with explained(location), self._connection.begin():
                self._ships = outbox.marking(self._connection)
                self._rows = TickWriter(self._connection)
        except BaseException:
            self.abandon()
            raise

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close, leaving a file that others can read without a writer beside it (no WAL)."""
        if self._connection.closed:
            return
        if self._dialect == "sqlite":
            sqlite.leave_wal(self._connection)
        self._connection.close()
        if self._batches is not None:
            self._batches.close()

    def abandon(self) -> None:
        """Release a damaged database without touching it again."""
        with suppress(Exception):
            self._connection.invalidate()
        with suppress(Exception):
            self._connection.close()
        if self._batches is not None:
            self._batches.close()

    def flush_high_water_mark(self) -> bool:
        """Flush the high-water mark to the disk, now and then: no transaction waits for that.

        Return whether its file had been deleted, and was made again.
        """
        return self._batches.flush() if self._batches is not None else False

    @property
    def high_water_mark_missing(self) -> bool:
        """Whether batches were found without a high-water mark when this was opened."""
        return self._batches is not None and self._batches.high_water_mark_missing

    @property
    def last(self) -> Acknowledged:
        """The last batch stored; sequence 0 before the first, and on a server."""
        return self._batches.last if self._batches else Acknowledged(0, 0)

    @property
    def lost(self) -> tuple[Acknowledged, Acknowledged] | None:
        """(last batch found, last batch acknowledged) where the second was not there any more."""
        return self._batches.lost if self._batches else None

    def commit(self, tick: rows.Tick) -> None:
        """Store a tick whole or not at all. Raises StoreError, with nothing of it stored.

        Of a tick with values that do not fit into the database, those are left out, with an event.
        """
        try:
            self._store(tick)
        except UNFIT:
            self._store(fitted(tick))

    def commit_all(self, ticks: Sequence[rows.Tick]) -> None:
        """Store several ticks in one transaction, oldest first: for history, which comes faster than a disk flushes.

        Raises StoreError with nothing stored; this writer must not be used any further then.
        """
        if not ticks:
            return
        with self._transaction(ticks[-1].ts):
            for tick in ticks:
                self._changed(self._connection, self._rows.put(tick))
                self._rows.stored(tick)

    def _store(self, tick: rows.Tick) -> None:
        with self._transaction(tick.ts):
            self._changed(self._connection, self._rows.put(tick))
        self._rows.stored(tick)

    def roll_up(self, *, hours: bool = True) -> int:
        """Bring roll-ups (of minutes alone, without `hours`) up to date with every row stored; returns how many.

        Without `hours` those keep their marks: an hour is read by its minutes until it is over.
        """
        done = 0
        for seconds in (MINUTE, HOUR) if hours else (MINUTE,):
            self._rows.forget_marks()
            with self._transaction():
                if not self._retried:
                    mark(self._connection, quarantine.of_other_versions(self._connection))
                quarantined = roll_up(self._connection, seconds, self._changed)
            self._retried = True
            done += quarantined.buckets
            self._quarantined += quarantined.failed
        return done

    def quarantined(self) -> list[Bucket]:
        """Return buckets that went into quarantine since this was last asked."""
        quarantined, self._quarantined = self._quarantined, []
        return quarantined

    def _changed(self, connection: Connection, marks: Iterable[outbox.Mark]) -> None:
        if self._ships:
            outbox.mark(connection, marks)

    def ship(self, on: bool, *, raw: bool = False) -> None:
        """Mark from now on what is to be shipped to a server (with ticks, where `raw`), or no longer."""
        with self._transaction():
            outbox.switch(self._folders_own(), on, raw)
        self._ships = on

    def shipped(self, seq: int, *, at_most: int, batch: int | None = None) -> int:
        """Delete up to `at_most` marks that the server holds by its batch `batch`; returns how many."""
        with self._transaction():
            return outbox.settle(self._folders_own(), seq, at_most, batch)

    def bound_spool(self, most: int) -> tuple[int, int]:
        """Keep at most `at_most` marks: returns (ticks given up, roll-ups left to the comparison with the server)."""
        with self._transaction():
            return outbox.bound(self._folders_own(), most)

    def unshipped(self) -> int:
        """Return minutes of ticks, each of one owner, that were deleted before they were shipped since this was last
        asked."""
        unshipped, self._unshipped = self._unshipped, 0
        return unshipped

    def _folders_own(self) -> Connection:
        if self._batches is None:
            raise StoreError(f"{self.location}: only a folder is shipped")
        return self._connection

    def _transaction(self, ts: int | None = None) -> AbstractContextManager[None]:
        return self._batches.transaction(ts) if self._batches else self._plain()

    @contextmanager
    def _plain(self) -> Iterator[None]:
        with explained(self.location), self._connection.begin():
            yield

    @property
    def restored(self) -> RestoredState:
        """State of the previous run, for an agent that starts."""
        return RestoredState(self.location, self._connection)

    def restore(self, checksummed: ChecksummedTable, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows as they are, in one transaction; returns how many were not there yet.

        Raises ValueError, with nothing stored, if a row is there with other values.
        """
        if self._batches is None:
            raise ValueError("rows are restored into a folder")
        at = [checksummed.columns.index(key) for key in checksummed.keys]
        keys = [tuple(row[position] for position in at) for row in rows]
        self._rows.forget_marks()
        new: list[tuple[Any, ...]] = []
        with self._transaction(self.last.ts):
            for key, row in zip(keys, rows, strict=True):
                stored = fetch(self._connection, checksummed.by_key, dict(zip(checksummed.keys, key, strict=True)))
                if not stored:
                    new.append(row)
                elif stored[0] != row:
                    named = ", ".join(
                        f"{name} {format_utc(value) if name == 'ts' else value}"
                        for name, value in zip(checksummed.keys, key, strict=True)
                    )
                    raise ValueError(
                        f"the row of {named} is there already, with other values; import into another folder"
                    )
            insert_rows(self._connection, checksummed.table, new)
        return len(new)

    def restore_new(self, checksummed: ChecksummedTable, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows as they are, in one transaction, into a database that whoever calls has made: none is looked up.

        Raises StoreError, with nothing stored, if a row with such a key is there.
        """
        self._rows.forget_marks()
        with self._transaction(self.last.ts):
            if self._dialect == "sqlite":
                insert_rows(self._connection, checksummed.table, rows)
            else:
                copy_rows(self._connection, checksummed.table, rows)

    def oldest(self, checksummed: ChecksummedTable) -> int | None:
        """Return start of the oldest stretch of which a table holds rows."""
        return self._start(checksummed, func.min(t.seal.c.ts))

    def _start(self, checksummed: ChecksummedTable, which: Any) -> int | None:
        with explained(self.location), self._connection.begin():
            start_ts: int | None = self._connection.execute(
                select(which).where(t.seal.c.name == checksummed.table.name)
            ).scalar()
            return start_ts

    def oldest_mark(self) -> int | None:
        """Return the start of the oldest bucket to be computed again."""
        with explained(self.location), self._connection.begin():
            oldest_ts: int | None = self._connection.execute(select(func.min(t.dirty.c.ts))).scalar()
            return oldest_ts

    def checkpoint(self) -> None:
        """Write the log back into the data file, so that it gives up its room; less of it while someone reads."""
        with explained(self.location):
            sqlite.checkpoint(self._connection)

    def restart_log(self) -> bool:
        """Begin another write-ahead log where the file of this one was deleted; return whether that was possible."""
        with explained(self.location):
            return sqlite.restart_log(self._connection)

    def delete_oldest(self, checksummed: ChecksummedTable, before: int) -> int | None:
        """Delete the oldest stretch of a table's rows with its checksums, in one transaction, if it ends by `before`.

        Returns how many rows those were; None if nothing is that old.
        """
        oldest = self.oldest(checksummed)
        if oldest is None or oldest + checksummed.span_s > before:
            return None
        until = oldest + checksummed.span_s
        with self._transaction(self.last.ts):
            deleted = self._delete(checksummed, -(2**63), until)
            if above := ROLLED_FROM.get(checksummed.table.name):
                quarantine.discard(self._connection, [above], until)
            if self._ships and checksummed in SAMPLES:
                self._unshipped += outbox.give_up(self._connection, until)
        return deleted

    def delete_newest(self, checksummed: ChecksummedTable, after: int) -> int | None:
        """Delete the newest stretch of a table's rows with its checksums, if it begins after `after`.

        One transaction. Returns how many rows those were; None if nothing is that new.
        """
        newest = self._start(checksummed, func.max(t.seal.c.ts))
        if newest is None or newest <= after:
            return None
        with self._transaction(self.last.ts):
            return self._delete(checksummed, newest, newest + checksummed.span_s)

    def _delete(self, checksummed: ChecksummedTable, start: int, until: int) -> int:
        if self._batches is None:
            raise StoreError(f"{self.location}: a server deletes old rows by its partitions")
        return self._batches.checksums.delete_stretch(checksummed, start, until)

    def delete_events(self, before: int) -> int:
        """Delete events last seen before `before`, the oldest first, up to `EVENTS_AT_ONCE`; returns how many."""
        return self._delete_events(EVENTS_AT_ONCE, t.event.c.last_ts < before)

    def bound_events(self, most: int = rows.MAX_EVENTS) -> int:
        """Delete the oldest events beyond `most`, up to `EVENTS_AT_ONCE`, whatever the clock shows; returns how
        many."""
        with explained(self.location), self._connection.begin():
            seal = select(t.seal.c.row_count).where(t.seal.c.name == t.event.name)
            over = (self._connection.execute(seal).scalar() or 0) - most
        # Some more than are over, so that not each new event deletes an old one.
        return self._delete_events(over + most // 20) if over > 0 else 0

    def _delete_events(self, limit: int, *old: ColumnElement[bool]) -> int:
        oldest = select(t.event.c.event_id).where(*old).order_by(t.event.c.last_ts).limit(min(limit, EVENTS_AT_ONCE))
        with self._transaction():
            return self._connection.execute(delete(t.event).where(t.event.c.event_id.in_(oldest))).rowcount

    def delete_batches(self, before: int) -> None:
        """Delete the notes of ticks before `before`; ahead of their rows, which are then no longer looked for.

        Those of a clock that was set back stay until the time of their rows has passed; ones that a wrong clock filed
        further ahead than `MAX_AHEAD_S` do not keep all that came after them.
        """
        with explained(self.location), self._connection.begin():
            kept = t.batch.c.ts.between(before, self.last.ts + MAX_AHEAD_S)
            first = select(func.min(t.batch.c.seq)).where(kept).scalar_subquery()
            last = select(func.max(t.batch.c.seq)).scalar_subquery()
            self._connection.execute(delete(t.batch).where(t.batch.c.seq < func.coalesce(first, last)))
