"""Writing of telemetry: one connection; a tick and its dirty marks in one transaction.

Front door: `Writer`. `TickWriter` inserts the rows of a tick, `folded` and `fitted` prepare them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Table, delete, func, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from pertoken.errors import StoreError
from pertoken.store.connect import sqlite
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import check_revision, explained, revision, upsert, writing
from pertoken.store.connect.sqlite import copy_rows, run_many
from pertoken.store.integrity.checksums import SAMPLES, Acknowledged, Batches, ChecksummedTable, insert_rows
from pertoken.store.integrity.verify import check_header, check_schema
from pertoken.store.query.read import by_epoch
from pertoken.store.query.rollups import fetch
from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, DeviceShare
from pertoken.store.schema.shared import Values, stable_id
from pertoken.store.schema.telemetry import HOUR, MINUTE, STORED_SAMPLES
from pertoken.store.write import outbox, rollup
from pertoken.store.write.restored_state import RestoredState
from pertoken.store.write.rollup import ROLLED_FROM, Bucket, Mark, adding, columns_of, mark, replacing, roll_up
from pertoken.units import SHARE, format_utc

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""Range of SQLite's INTEGER and PostgreSQL's BIGINT."""
UNFIT = (OverflowError, UnicodeEncodeError)
"""Errors of writing a value that does not fit its column."""
EVENTS_AT_ONCE = 2_000
"""Events deleted in one transaction, which takes some milliseconds between ticks."""
MAX_AHEAD_S = 31 * 86_400
"""Rows further ahead of the last tick than this do not keep older batches."""


class Writer:
    """Only writer of the telemetry of a folder or a server. All calls come from the thread that opened it."""

    def __init__(self, location: StoreLocation, max_bytes: int | None = None) -> None:
        """Open `location` for writing, with a data file of at most `max_bytes`.

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
        self._marked_other_versions = False
        """Whether roll-ups that other versions computed were marked dirty."""
        self._batches: Batches | None = None
        """Only for SQLite: PostgreSQL keeps checksums of its pages."""
        try:
            if self._dialect == "sqlite":
                with explained(location):
                    check_schema(location, self._connection)
                    sqlite.limit_size(self._connection, max_bytes)
                self._batches = Batches(location, self._connection)
            with explained(location), self._connection.begin():
                self._ships = outbox.marking(self._connection)
                self._tick_writer = TickWriter(self._connection)
        except BaseException:
            self.abandon()
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and leave its WAL mode, so that others can read the file without a writer."""
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
        """Flush the high-water mark to the disk, which no transaction waits for.

        Return whether its file had been deleted, and was made again.
        """
        return self._batches.flush() if self._batches is not None else False

    @property
    def high_water_mark_missing(self) -> bool:
        """Whether the database had batches but no high-water mark when it was opened."""
        return self._batches is not None and self._batches.high_water_mark_missing

    @property
    def last(self) -> Acknowledged:
        """Last stored batch; its sequence is 0 before the first batch, and on a server."""
        return self._batches.last if self._batches else Acknowledged(0, 0)

    @property
    def lost(self) -> tuple[Acknowledged, Acknowledged] | None:
        """(last stored batch, last acknowledged batch) if the acknowledged batch is missing."""
        return self._batches.lost if self._batches else None

    def commit(self, tick: rows.Tick) -> None:
        """Store a tick whole or not at all. Raises StoreError, with nothing of it stored.

        Values that do not fit into the database are left out, with an event.
        """
        try:
            self._store(tick)
        except UNFIT:
            self._store(fitted(tick))

    def commit_all(self, ticks: Sequence[rows.Tick]) -> None:
        """Store several ticks in one transaction, oldest first: history comes faster than a disk flushes.

        Raises StoreError with nothing stored; then this writer must not be used again.
        """
        if not ticks:
            return
        with self._transaction(ticks[-1].ts):
            for tick in ticks:
                self._mark_to_ship(self._connection, self._tick_writer.put(tick))
                self._tick_writer.stored(tick)

    def _store(self, tick: rows.Tick) -> None:
        with self._transaction(tick.ts):
            self._mark_to_ship(self._connection, self._tick_writer.put(tick))
        self._tick_writer.stored(tick)

    def roll_up(self, *, hours: bool = True) -> int:
        """Compute the roll-ups with dirty marks; return how many.

        Without `hours`, only minutes: an hour keeps its mark, and is read from its minutes until it is over.
        """
        computed = 0
        for seconds in (MINUTE, HOUR) if hours else (MINUTE,):
            self._tick_writer.forget_marks()
            with self._transaction():
                if not self._marked_other_versions:
                    mark(self._connection, rollup.of_other_versions(self._connection))
                outcome = roll_up(self._connection, seconds, self._mark_to_ship)
            self._marked_other_versions = True
            computed += outcome.buckets
            self._quarantined += outcome.failed
        return computed

    def quarantined(self) -> list[Bucket]:
        """Return the buckets that went into quarantine since the previous call."""
        quarantined, self._quarantined = self._quarantined, []
        return quarantined

    def _mark_to_ship(self, connection: Connection, marks: Iterable[outbox.Mark]) -> None:
        if self._ships:
            outbox.mark(connection, marks)

    def ship(self, on: bool, *, raw: bool = False) -> None:
        """Switch marking of changes for a server on or off; `raw`: mark ticks too, not only roll-ups."""
        with self._transaction():
            outbox.switch(self._folder_connection(), on, raw)
        self._ships = on

    def shipped(self, seq: int, *, at_most: int, batch: int | None = None) -> int:
        """Delete up to `at_most` marks, up to `seq`, that the server stored by its batch `batch`; return how many."""
        with self._transaction():
            return outbox.settle(self._folder_connection(), seq, at_most, batch)

    def bound_spool(self, most: int) -> tuple[int, int]:
        """Delete marks beyond `most`; return (deleted of ticks, deleted of roll-ups, which comparison finds again)."""
        with self._transaction():
            return outbox.bound(self._folder_connection(), most)

    def unshipped(self) -> int:
        """Return how many minutes of ticks, per owner, were deleted unshipped since the previous call."""
        unshipped, self._unshipped = self._unshipped, 0
        return unshipped

    def _folder_connection(self) -> Connection:
        if self._batches is None:
            raise StoreError(f"{self.location}: only a folder is shipped")
        return self._connection

    def _transaction(self, ts: int | None = None) -> AbstractContextManager[None]:
        return self._batches.transaction(ts) if self._batches else self._server_transaction()

    @contextmanager
    def _server_transaction(self) -> Iterator[None]:
        with explained(self.location), self._connection.begin():
            yield

    @property
    def restored(self) -> RestoredState:
        """State of the previous run, for an agent that starts."""
        return RestoredState(self.location, self._connection)

    def restore(self, checksummed: ChecksummedTable, rows: Sequence[Values]) -> int:
        """Insert rows as they are, in one transaction; return how many were new.

        Raises ValueError, with nothing stored, if a stored row has the same key and other values.
        """
        if self._batches is None:
            raise ValueError("rows are restored into a folder")
        positions = [checksummed.columns.index(key) for key in checksummed.keys]
        keys = [tuple(row[position] for position in positions) for row in rows]
        self._tick_writer.forget_marks()
        new: list[Values] = []
        with self._transaction(self.last.ts):
            for key, row in zip(keys, rows, strict=True):
                values = dict(zip(checksummed.keys, key, strict=True))
                stored: Sequence[Values] = fetch(self._connection, checksummed.by_key, values)
                if not stored:
                    new.append(row)
                elif stored[0] != row:
                    key_text = ", ".join(
                        f"{name} {format_utc(value) if name == 'ts' and isinstance(value, int) else value}"
                        for name, value in zip(checksummed.keys, key, strict=True)
                    )
                    raise ValueError(
                        f"the row of {key_text} is there already, with other values; import into another folder"
                    )
            insert_rows(self._connection, checksummed.table, new)
        return len(new)

    def restore_new(self, checksummed: ChecksummedTable, rows: Sequence[Values]) -> None:
        """Insert rows as they are, in one transaction, into a new database, without comparing them with stored rows.

        Raises StoreError, with nothing stored, if a stored row has the same key.
        """
        self._tick_writer.forget_marks()
        with self._transaction(self.last.ts):
            if self._dialect == "sqlite":
                insert_rows(self._connection, checksummed.table, rows)
            else:
                copy_rows(self._connection, checksummed.table, rows)

    def oldest(self, checksummed: ChecksummedTable) -> int | None:
        """Return the start of the oldest checksummed interval of a table; None without rows."""
        return self._interval_start(checksummed, func.min(t.seal.c.ts))

    def _interval_start(self, checksummed: ChecksummedTable, first_or_last: ColumnElement[int]) -> int | None:
        with explained(self.location), self._connection.begin():
            statement = select(first_or_last).where(t.seal.c.name == checksummed.table.name)
            start_ts: int | None = self._connection.execute(statement).scalar()
            return start_ts

    def oldest_mark(self) -> int | None:
        """Return the start of the oldest bucket with a dirty mark; None without marks."""
        with explained(self.location), self._connection.begin():
            oldest_ts: int | None = self._connection.execute(select(func.min(t.dirty.c.ts))).scalar()
            return oldest_ts

    def checkpoint(self) -> None:
        """Write the log back into the data file to free its space; a concurrent reader limits how much."""
        with explained(self.location):
            sqlite.checkpoint(self._connection)

    def restart_log(self) -> bool:
        """Begin a new write-ahead log if its file was deleted; return whether that was possible."""
        with explained(self.location):
            return sqlite.restart_log(self._connection)

    def delete_oldest(self, checksummed: ChecksummedTable, before_ts: int) -> int | None:
        """Delete the oldest interval of a table with its checksums, in one transaction, if it ends by `before_ts`.

        Return the number of deleted rows; None if no interval is that old.
        """
        oldest = self.oldest(checksummed)
        if oldest is None or oldest + checksummed.interval_s > before_ts:
            return None
        until = oldest + checksummed.interval_s
        with self._transaction(self.last.ts):
            deleted = self._delete(checksummed, MIN_INTEGER, until)
            if rolled_up := ROLLED_FROM.get(checksummed.table.name):
                rollup.discard(self._connection, [rolled_up], until)
            if self._ships and checksummed in SAMPLES:
                self._unshipped += outbox.give_up(self._connection, until)
        return deleted

    def delete_newest(self, checksummed: ChecksummedTable, after: int) -> int | None:
        """Delete the newest interval of a table with its checksums, in one transaction, if it begins after `after`.

        Return the number of deleted rows; None if no interval is that new.
        """
        newest = self._interval_start(checksummed, func.max(t.seal.c.ts))
        if newest is None or newest <= after:
            return None
        with self._transaction(self.last.ts):
            return self._delete(checksummed, newest, newest + checksummed.interval_s)

    def _delete(self, checksummed: ChecksummedTable, start: int, until: int) -> int:
        if self._batches is None:
            raise StoreError(f"{self.location}: a server deletes old rows by its partitions")
        return self._batches.checksums.delete_interval(checksummed, start, until)

    def delete_events(self, before_ts: int) -> int:
        """Delete events last seen before `before_ts`, oldest first, up to `EVENTS_AT_ONCE`; return how many."""
        return self._delete_events(EVENTS_AT_ONCE, t.event.c.last_ts < before_ts)

    def bound_events(self, most: int = rows.MAX_EVENTS) -> int:
        """Delete the oldest events beyond `most`, up to `EVENTS_AT_ONCE`, at any clock; return how many."""
        with explained(self.location), self._connection.begin():
            stored_count = select(t.seal.c.row_count).where(t.seal.c.name == t.event.name)
            excess = (self._connection.execute(stored_count).scalar() or 0) - most
        # A twentieth more than the excess, so that not every new event deletes an old one.
        return self._delete_events(excess + most // 20) if excess > 0 else 0

    def _delete_events(self, limit: int, *old: ColumnElement[bool]) -> int:
        oldest = select(t.event.c.event_id).where(*old).order_by(t.event.c.last_ts).limit(min(limit, EVENTS_AT_ONCE))
        with self._transaction():
            return self._connection.execute(delete(t.event).where(t.event.c.event_id.in_(oldest))).rowcount

    def delete_batches(self, before_ts: int) -> None:
        """Delete the batches of ticks before `before_ts`, before their rows, which are then no longer required.

        Deletion is in sequence: a batch of a clock that was set back later keeps all batches after it until its time
        has passed, unless it is further ahead than `MAX_AHEAD_S`.
        """
        with explained(self.location), self._connection.begin():
            kept = t.batch.c.ts.between(before_ts, self.last.ts + MAX_AHEAD_S)
            first_kept = select(func.min(t.batch.c.seq)).where(kept).scalar_subquery()
            last = select(func.max(t.batch.c.seq)).scalar_subquery()
            self._connection.execute(delete(t.batch).where(t.batch.c.seq < func.coalesce(first_kept, last)))


_STATE_COLUMNS = tuple(column.name for column in t.counter_state.columns)
_STATE = attrgetter(*_STATE_COLUMNS)
SEEN_S = 60
"""Shortest time between two writes of an unchanged identity, which only advance its `last_ts`."""
MAX_MESSAGE = 1000
"""Stored characters of an event's message."""
_FIGURES = re.compile(r"\d+(?:[.,:]\d+)*")


class TickWriter:
    """Writer of ticks within the transactions of one connection. It skips identities and marks that are stored."""

    def __init__(self, connection: Connection) -> None:
        """`connection` is in a transaction, now and at each `put`."""
        self._connection = connection
        self._dialect = connection.dialect.name
        self._seen: dict[int, tuple[object, int]] = {}
        """Last written row of each identity by id, and the `ts` of its tick."""
        self._bucket_sets: frozenset[int] = frozenset()
        """Ids of stored histogram bucket sets."""
        self._devices_by_epoch = by_epoch(fetch(connection, select(t.epoch_device)))
        self._uncommitted_seen: dict[int, tuple[object, int]] = {}
        self._marked: set[Mark] = set()
        """Dirty marks stored since the last roll-up: only this writer deletes them from a file."""
        self._uncommitted_marks: set[Mark] = set()

    def put(self, tick: rows.Tick) -> list[outbox.Mark]:
        """Insert a tick; return its marks for shipping, without roll-ups. Call `stored` once it is committed."""
        self._uncommitted_seen = self._put_identities(tick)
        event_ids = self._put_states_and_events(tick, self._put_samples(tick))
        return self._marks(tick, event_ids, identities=bool(self._uncommitted_seen))

    def stored(self, tick: rows.Tick) -> None:
        """Remember the rows and marks of the last tick, which was committed."""
        self._seen |= self._uncommitted_seen
        if self._dialect == "sqlite":
            self._marked |= self._uncommitted_marks
        self._bucket_sets |= tick.bucket_sets.keys()
        self._devices_by_epoch |= {epoch.epoch_id: epoch.device_ids for epoch in tick.epochs}

    def forget_marks(self) -> None:
        """Forget the stored dirty marks, which are about to be deleted."""
        self._marked.clear()

    def _put_identities(self, tick: rows.Tick) -> dict[int, tuple[object, int]]:
        written: dict[int, tuple[object, int]] = {}
        for table, values in (
            (t.host, (tick.host,)),
            (t.device, tick.devices),
            (t.engine, tick.engines),
            (t.deployment, tick.deployments),
        ):
            due = []
            for value in values:
                key = getattr(value, value.__slots__[0])
                previous_row, written_ts = self._seen.get(key, (None, 0))
                if (value is not previous_row and value != previous_row) or not 0 <= tick.ts - written_ts < SEEN_S:
                    due.append({**columns_of(value), "first_ts": tick.ts, "last_ts": tick.ts})
                    written[key] = value, tick.ts
            self._put(table, due, kept=("first_ts",))
        for epoch in tick.epochs:
            self._put_epoch(epoch)
        return written

    def _put_epoch(self, epoch: rows.EpochRow) -> None:
        values = asdict(epoch)
        devices = values.pop("device_ids")
        # A new epoch ends the previous one; a stored epoch may get knobs that could not be read before.
        stored = t.epoch.c
        previous = stored.deployment_id == epoch.deployment_id, stored.epoch_id != epoch.epoch_id
        ended = update(t.epoch).where(*previous, stored.end_ts.is_(None)).values(end_ts=epoch.start_ts)
        self._connection.execute(ended)
        statement = upsert(self._dialect, t.epoch).values(values)
        self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=["epoch_id"],
                set_={name: statement.excluded[name] for name in ("end_ts", "engine_version", "knobs")},
            )
        )
        self._connection.execute(delete(t.epoch_device).where(t.epoch_device.c.epoch_id == epoch.epoch_id))
        if devices:
            self._connection.execute(
                insert(t.epoch_device), [{"epoch_id": epoch.epoch_id, "device_id": device} for device in devices]
            )

    def _put_samples(self, tick: rows.Tick) -> list[rows.Event]:
        """Insert the samples and their dirty marks; return an event for each table with repeated keys."""
        events: list[rows.Event] = []
        by_type = defaultdict(list)
        devices = {**self._devices_by_epoch, **{epoch.epoch_id: epoch.device_ids for epoch in tick.epochs}}
        for sample in folded(tick.samples, devices):
            by_type[type(sample)].append(sample)
        dirty: set[Mark] = set()
        for kind, samples in by_type.items():
            stored = STORED_SAMPLES[kind]
            values = list(map(stored.values, samples))
            if len(set(map(stored.key, values))) < len(values):
                # A defect in one collector costs the rows of that owner, never the tick.
                values = list({stored.key(row): row for row in reversed(values)}.values())[::-1]
                message = f"{stored.table.name}: of two rows with one key the first is kept"
                events.append(rows.Event("rows_twice", message))
            insert_rows(self._connection, stored.table, values)
            if stored.rollup is not None:
                name = f"{stored.rollup}_1m"
                dirty.update([(name, owner, bucket(ts, 60)) for owner, ts in map(stored.owner_and_ts, values)])
        new_bucket_sets = [
            {"bucket_set_id": key, "upper_bounds": ",".join(map(repr, bounds))}
            for key, bounds in tick.bucket_sets.items()
            if key not in self._bucket_sets
        ]
        if new_bucket_sets:
            self._connection.execute(adding(self._dialect, t.histogram_set), new_bucket_sets)
        self._uncommitted_marks = dirty - self._marked
        mark(self._connection, self._uncommitted_marks)
        return events

    def _marks(self, tick: rows.Tick, event_ids: list[int], *, identities: bool) -> list[outbox.Mark]:
        return [
            *([(outbox.IDENTITY.name, tick.host.host_id, 0)] if identities else []),
            *((outbox.EPOCH.name, epoch.deployment_id, 0) for epoch in tick.epochs),
            *(
                (outbox.HISTOGRAM_SET.name, bucket_set, 0)
                for bucket_set in tick.bucket_sets
                if bucket_set not in self._bucket_sets
            ),
            *(
                (outbox.CAPABILITY.name, owner_id, 0)
                for owner_id in sorted({capability.owner_id for capability in tick.capabilities})
            ),
            *((outbox.EVENT.name, event_id, 0) for event_id in event_ids),
        ]

    def _put_states_and_events(self, tick: rows.Tick, sample_events: list[rows.Event]) -> list[int]:
        """Insert counters, capabilities and all events; return the ids of the events."""
        event_ids = []
        for owner_id, series in tick.forgotten:
            stored = t.counter_state.c
            forgotten = stored.owner_id == owner_id, stored.series == series
            self._connection.execute(delete(t.counter_state).where(*forgotten))
        self._put_counters(tick)
        self._put(t.capability, [{**columns_of(capability), "since_ts": tick.ts} for capability in tick.capabilities])
        for event in (*tick.events, *sample_events):
            event_ids.append(event_id := _event_id(tick, event))
            message = event.message[:MAX_MESSAGE]
            statement = upsert(self._dialect, t.event).values(
                event_id=event_id,
                host_id=tick.host.host_id,
                ts=tick.ts,
                last_ts=tick.ts,
                count=1,
                kind=event.kind,
                subject_id=event.subject_id,
                message=message,
            )
            repeat = {"last_ts": tick.ts, "count": t.event.c.count + 1, "message": message}
            self._connection.execute(statement.on_conflict_do_update(index_elements=["event_id"], set_=repeat))
        return event_ids

    def _put_counters(self, tick: rows.Tick) -> None:
        states = {(counter.owner_id, counter.series): _STATE(counter) for counter in tick.counters}
        statement = replacing(self._dialect, t.counter_state, ())
        run_many(self._connection, statement, _STATE_COLUMNS, list(states.values()))

    def _put(self, table: Table, values: list[dict[str, int | str | None]], kept: tuple[str, ...] = ()) -> None:
        if values:
            self._connection.execute(replacing(self._dialect, table, kept), values)


def bucket(ts: int, seconds: int) -> int:
    """Return the start of the bucket of a row that ends at `ts`: one at 60 covers the time before, so bucket 0."""
    return (ts - 1) // seconds * seconds


def _event_id(tick: rows.Tick, event: rows.Event) -> int:
    """Return one id for repeats of an event within an hour, also if only figures in their messages differ."""
    state = _FIGURES.sub("#", event.message) if event.state is None else event.state
    subject = event.subject_id or tick.host.host_id
    return stable_id("event", tick.host.host_id, event.kind, subject, state, tick.ts // 3600)


def folded(samples: Sequence[rows.SampleValue], devices: Mapping[int, tuple[int, ...]]) -> list[rows.SampleValue]:
    """Return the samples of a tick without the device shares that the row of a deployment implies.

    `devices`: device ids by epoch.
    """
    whole_shares: defaultdict[int, list[DeviceShare]] = defaultdict(list)
    for share in samples:
        if type(share) is DeviceShare and share.share_1e6 == SHARE:
            whole_shares[share.epoch_id].append(share)
    provenance_by_epoch: dict[int, int] = {}
    for sample in samples:
        if type(sample) is DeploymentSample:
            provenance = _implied(sample, whole_shares.get(sample.epoch_id, ()), devices.get(sample.epoch_id, ()))
            if provenance is not None:
                provenance_by_epoch[sample.epoch_id] = provenance
    return [
        replace(sample, whole_provenance=provenance_by_epoch[sample.epoch_id])
        if type(sample) is DeploymentSample and sample.epoch_id in provenance_by_epoch
        else sample
        for sample in samples
        if not (type(sample) is DeviceShare and sample.share_1e6 == SHARE and sample.epoch_id in provenance_by_epoch)
    ]


def _implied(sample: DeploymentSample, shares: Sequence[DeviceShare], devices: Sequence[int]) -> int | None:
    """Return the provenance of shares that a deployment's sample implies: whole devices, equal times. Else None."""
    if not shares or len(shares) != len(devices) or {share.device_id for share in shares} != set(devices):
        return None
    shares_seen = {(share.ts, share.duration_ms, share.busy_ms, int(share.provenance)) for share in shares}
    ts, duration_ms, busy_ms, provenance = next(iter(shares_seen))
    sample_busy_ms = sample.busy_ms or 0
    if sample.busy_ms is None and sample.busy_provenance is not None:
        sample_busy_ms = sample.observed_ms
    implied = (sample.ts, sample.duration_ms, min(sample_busy_ms, sample.duration_ms))
    return provenance if len(shares_seen) == 1 and (ts, duration_ms, busy_ms) == implied else None


Row = TypeVar("Row", bound="rows.DeviceSample | DataclassInstance")


def fitted(tick: rows.Tick) -> rows.Tick:
    """Return the tick without values that do not fit, and with an event for each column that lost any.

    Such a value becomes NULL; if its column requires one, its row is left out. Characters outside UTF-8 are replaced.
    """
    lost: Counter[tuple[str, str]] = Counter()

    def fit(table: Table, values: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(row for value in values if (row := _fitted(table, value, lost)) is not None)

    kept = replace(
        tick,
        host=_fitted(t.host, tick.host, lost) or tick.host,
        devices=fit(t.device, tick.devices),
        engines=fit(t.engine, tick.engines),
        deployments=fit(t.deployment, tick.deployments),
        epochs=fit(t.epoch, tick.epochs),
        samples=tuple(
            row
            for sample in tick.samples
            if (row := _fitted(STORED_SAMPLES[type(sample)].table, sample, lost)) is not None
        ),
        counters=fit(t.counter_state, tick.counters),
        capabilities=fit(t.capability, tick.capabilities),
        events=fit(t.event, tick.events),
    )
    events = (
        rows.Event("value_lost", f"a value of {table}.{column} does not fit into the database and was left out")
        for table, column in sorted(lost)
    )
    return replace(kept, events=(*kept.events, *events))


def _fitted(table: Table, value: Row, lost: Counter[tuple[str, str]]) -> Row | None:
    """Return the row with the values that fit; None if it lacks a value that its table requires."""
    columns = table.columns
    changed: dict[str, str | None] = {}
    names = value._fields if isinstance(value, rows.DeviceSample) else [field.name for field in fields(value)]
    for name in names:
        field = getattr(value, name)
        if isinstance(field, int) and not MIN_INTEGER <= field <= MAX_INTEGER:
            lost[table.name, name] += 1
            if name not in columns or not columns[name].nullable:
                return None
            changed[name] = None
        elif isinstance(field, str):
            text = field.encode("utf-8", "replace").decode("utf-8")
            if text != field:
                changed[name] = text
    if not changed:
        return value
    return (
        value._replace(**dict.fromkeys(changed)) if isinstance(value, rows.DeviceSample) else replace(value, **changed)
    )
