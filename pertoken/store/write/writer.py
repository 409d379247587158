"""Writing telemetry: one connection, one transaction for a tick, dirty marks in that same transaction."""

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
from pertoken.store.schema.rows import STORED_SAMPLES, DeploymentSample, DeviceShare
from pertoken.store.schema.shared import Values, stable_id
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write import outbox, rollup
from pertoken.store.write.restored_state import RestoredState
from pertoken.store.write.rollup import ROLLED_FROM, Bucket, Mark, adding, columns_of, mark, replacing, roll_up
from pertoken.units import SHARE, format_utc

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def folded(samples: Sequence[rows.SampleValue], devices: Mapping[int, tuple[int, ...]]) -> list[rows.SampleValue]:
    """Return the samples of a tick without the shares that a deployment's row implies.

    `devices` are those of each epoch."""
    shares: defaultdict[int, list[DeviceShare]] = defaultdict(list)
    for item in samples:
        if type(item) is DeviceShare and item.share_1e6 == SHARE:
            shares[item.epoch_id].append(item)
    provenance_by_epoch: dict[int, int] = {}
    for sample in samples:
        if type(sample) is DeploymentSample:
            provenance = _whole(sample, shares.get(sample.epoch_id, ()), devices.get(sample.epoch_id, ()))
            if provenance is not None:
                provenance_by_epoch[sample.epoch_id] = provenance
    return [
        replace(sample, whole_provenance=provenance_by_epoch[sample.epoch_id])
        if type(sample) is DeploymentSample and sample.epoch_id in provenance_by_epoch
        else sample
        for sample in samples
        if not (type(sample) is DeviceShare and sample.share_1e6 == SHARE and sample.epoch_id in provenance_by_epoch)
    ]


def _whole(sample: DeploymentSample, shares: Sequence[DeviceShare], devices: Sequence[int]) -> int | None:
    """By what it is known that the shares are all of each device, over the sample's time; None if they are not."""
    if not shares or len(shares) != len(devices) or {share.device_id for share in shares} != set(devices):
        return None
    shares_seen = {(share.ts, share.duration_ms, share.busy_ms, int(share.provenance)) for share in shares}
    ts, duration_ms, busy_ms, provenance = next(iter(shares_seen))
    at_most_ms = sample.busy_ms or 0
    if sample.busy_ms is None and sample.busy_provenance is not None:
        at_most_ms = sample.observed_ms
    same = (ts, duration_ms, busy_ms) == (sample.ts, sample.duration_ms, min(at_most_ms, sample.duration_ms))
    return provenance if len(shares_seen) == 1 and same else None


_STATE_COLUMNS = tuple(column.name for column in t.counter_state.columns)
_STATE = attrgetter(*_STATE_COLUMNS)
SEEN_S = 60
"""Least time between two notes that something is still there and still the same."""


def bucket(ts: int, seconds: int) -> int:
    """Return start of the bucket a row ending at `ts` belongs to: a row at 60 covers the time up to 60, so bucket 0."""
    return (ts - 1) // seconds * seconds


MAX_MESSAGE = 1000
"""Characters of an event's message that are stored."""
_FIGURES = re.compile(r"\d+(?:[.,:]\d+)*")


def _event_id(tick: rows.Tick, event: rows.Event) -> int:
    """Return the same for repeats within an hour, whatever figures their messages hold: a changing one makes no new
    row."""
    state = _FIGURES.sub("#", event.message) if event.state is None else event.state
    subject = event.subject_id or tick.host.host_id
    return stable_id("event", tick.host.host_id, event.kind, subject, state, tick.ts // 3600)


class TickWriter:
    """Writer of ticks into the tables of one connection, within its transactions; it skips what is stored already."""

    def __init__(self, connection: Connection) -> None:
        """`connection` is in a transaction, now and at each `put`."""
        self._connection = connection
        self._dialect = connection.dialect.name
        self._seen: dict[int, tuple[object, int]] = {}
        """By id: an identity as it was last written, and that tick's `ts`."""
        self._bucket_sets: frozenset[int] = frozenset()
        """Those that are stored already."""
        self._devices_of = by_epoch(fetch(connection, select(t.epoch_device)))
        self._put_now: dict[int, tuple[object, int]] = {}
        self._marked: set[Mark] = set()
        """Dirty marks stored since the last roll-up. Nobody else deletes them from a file; on a server others may."""
        self._marked_now: set[Mark] = set()

    def put(self, tick: rows.Tick) -> list[outbox.Mark]:
        """Insert a tick; returns what of it is to be shipped beside roll-ups. Followed by `stored` where it was."""
        self._put_now = self._identities(tick)
        events = self._memory(tick, self._samples(tick))
        return self._marks(tick, events, identities=bool(self._put_now))

    def stored(self, tick: rows.Tick) -> None:
        """Note that the tick put last was committed."""
        self._seen |= self._put_now
        if self._dialect == "sqlite":
            self._marked |= self._marked_now
        self._bucket_sets |= tick.bucket_sets.keys()
        self._devices_of |= {epoch.epoch_id: epoch.device_ids for epoch in tick.epochs}

    def forget_marks(self) -> None:
        """Dirty marks are about to be deleted: store them again when they are due."""
        self._marked.clear()

    def _identities(self, tick: rows.Tick) -> dict[int, tuple[object, int]]:
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
        columns = asdict(epoch)
        devices = columns.pop("device_ids")
        # A stretch begins where the one before it ends; the same epoch may learn a knob it could not see.
        self._connection.execute(
            update(t.epoch)
            .where(
                t.epoch.c.deployment_id == epoch.deployment_id,
                t.epoch.c.end_ts.is_(None),
                t.epoch.c.epoch_id != epoch.epoch_id,
            )
            .values(end_ts=epoch.start_ts)
        )
        statement = upsert(self._dialect, t.epoch).values(columns)
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

    def _samples(self, tick: rows.Tick) -> list[rows.Event]:
        """Insert the samples; returns what to report of them."""
        events: list[rows.Event] = []
        by_type = defaultdict(list)
        devices = {**self._devices_of, **{epoch.epoch_id: epoch.device_ids for epoch in tick.epochs}}
        for sample in folded(tick.samples, devices):
            by_type[type(sample)].append(sample)
        dirty: set[Mark] = set()
        for kind, samples in by_type.items():
            stored = STORED_SAMPLES[kind]
            values = list(map(stored.values, samples))
            if len(set(map(stored.key, values))) < len(values):
                # A defect of whoever made the tick costs the rows of that owner, never the tick.
                values = list({stored.key(row): row for row in reversed(values)}.values())[::-1]
                events.append(
                    rows.Event("rows_twice", f"{stored.table.name}: of two rows with one key the first is kept")
                )
            insert_rows(self._connection, stored.table, values)
            if stored.rollup is not None:
                name = f"{stored.rollup}_1m"
                dirty.update([(name, owner, bucket(ts, 60)) for owner, ts in map(stored.owner_and_ts, values)])
        sets = [
            {"bucket_set_id": key, "upper_bounds": ",".join(map(repr, bounds))}
            for key, bounds in tick.bucket_sets.items()
            if key not in self._bucket_sets
        ]
        if sets:
            self._connection.execute(adding(self._dialect, t.histogram_set), sets)
        self._marked_now = dirty - self._marked
        mark(self._connection, self._marked_now)
        return events

    def _marks(self, tick: rows.Tick, events: list[int], *, identities: bool) -> list[outbox.Mark]:
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
            *((outbox.EVENT.name, event, 0) for event in events),
        ]

    def _memory(self, tick: rows.Tick, more: list[rows.Event]) -> list[int]:
        """Return counters, capabilities and events, `more` events too; returns the ids of the events."""
        events = []
        for owner_id, series in tick.forgotten:
            self._connection.execute(
                delete(t.counter_state).where(
                    t.counter_state.c.owner_id == owner_id, t.counter_state.c.series == series
                )
            )
        self._count(tick)
        self._put(t.capability, [{**columns_of(capability), "since_ts": tick.ts} for capability in tick.capabilities])
        for event in (*tick.events, *more):
            events.append(event_id := _event_id(tick, event))
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
        return events

    def _count(self, tick: rows.Tick) -> None:
        states = {(counter.owner_id, counter.series): _STATE(counter) for counter in tick.counters}
        replace = replacing(self._dialect, t.counter_state, ())
        run_many(self._connection, replace, _STATE_COLUMNS, list(states.values()))

    def _put(self, table: Table, values: list[dict[str, int | str | None]], kept: tuple[str, ...] = ()) -> None:
        if values:
            self._connection.execute(replacing(self._dialect, table, kept), values)


MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""What SQLite's INTEGER and PostgreSQL's BIGINT hold."""
UNFIT = (OverflowError, UnicodeEncodeError)
"""What writing a value raises that does not fit."""
Row = TypeVar("Row", bound="rows.DeviceSample | DataclassInstance")


def fitted(tick: rows.Tick) -> rows.Tick:
    """Return the tick without the values that do not fit, and with an event for each column that lost any.

    Such a value becomes NULL; where the column requires one, its row is left out. Characters that UTF-8 does not have
    are replaced.
    """
    lost: Counter[tuple[str, str]] = Counter()

    def fit(table: Table, values: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(fitted for fitted in (_fitted(table, value, lost) for value in values) if fitted is not None)

    kept = replace(
        tick,
        host=_fitted(t.host, tick.host, lost) or tick.host,
        devices=fit(t.device, tick.devices),
        engines=fit(t.engine, tick.engines),
        deployments=fit(t.deployment, tick.deployments),
        epochs=fit(t.epoch, tick.epochs),
        samples=tuple(
            fitted
            for fitted in (_fitted(STORED_SAMPLES[type(sample)].table, sample, lost) for sample in tick.samples)
            if fitted is not None
        ),
        counters=fit(t.counter_state, tick.counters),
        capabilities=fit(t.capability, tick.capabilities),
        events=fit(t.event, tick.events),
    )
    event = (
        rows.Event("value_lost", f"a value of {table}.{column} does not fit into the database and was left out")
        for table, column in sorted(lost)
    )
    return replace(kept, events=(*kept.events, *event))


def _fitted(table: Table, value: Row, lost: Counter[tuple[str, str]]) -> Row | None:
    """Return the row with what fits; None if it lacks a value that its table requires."""
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

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
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
                    mark(self._connection, rollup.of_other_versions(self._connection))
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

    def restore(self, checksummed: ChecksummedTable, rows: Sequence[Values]) -> int:
        """Insert rows as they are, in one transaction; returns how many were not there yet.

        Raises ValueError, with nothing stored, if a row is there with other values.
        """
        if self._batches is None:
            raise ValueError("rows are restored into a folder")
        positions = [checksummed.columns.index(key) for key in checksummed.keys]
        keys = [tuple(row[position] for position in positions) for row in rows]
        self._rows.forget_marks()
        new: list[Values] = []
        with self._transaction(self.last.ts):
            for key, row in zip(keys, rows, strict=True):
                values = dict(zip(checksummed.keys, key, strict=True))
                stored: Sequence[Values] = fetch(self._connection, checksummed.by_key, values)
                if not stored:
                    new.append(row)
                elif stored[0] != row:
                    named = ", ".join(
                        f"{name} {format_utc(value) if name == 'ts' and isinstance(value, int) else value}"
                        for name, value in zip(checksummed.keys, key, strict=True)
                    )
                    raise ValueError(
                        f"the row of {named} is there already, with other values; import into another folder"
                    )
            insert_rows(self._connection, checksummed.table, new)
        return len(new)

    def restore_new(self, checksummed: ChecksummedTable, rows: Sequence[Values]) -> None:
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

    def _start(self, checksummed: ChecksummedTable, end: ColumnElement[int]) -> int | None:
        with explained(self.location), self._connection.begin():
            start_ts: int | None = self._connection.execute(
                select(end).where(t.seal.c.name == checksummed.table.name)
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

    def delete_oldest(self, checksummed: ChecksummedTable, before_ts: int) -> int | None:
        """Delete the oldest stretch of a table's rows with its checksums in one transaction, if it ends by `before_ts`.

        Returns how many rows those were; None if nothing is that old.
        """
        oldest = self.oldest(checksummed)
        if oldest is None or oldest + checksummed.span_s > before_ts:
            return None
        until = oldest + checksummed.span_s
        with self._transaction(self.last.ts):
            deleted = self._delete(checksummed, -(2**63), until)
            if above := ROLLED_FROM.get(checksummed.table.name):
                rollup.discard(self._connection, [above], until)
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

    def delete_events(self, before_ts: int) -> int:
        """Delete events last seen before `before_ts`, the oldest first, up to `EVENTS_AT_ONCE`; returns how many."""
        return self._delete_events(EVENTS_AT_ONCE, t.event.c.last_ts < before_ts)

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

    def delete_batches(self, before_ts: int) -> None:
        """Delete the notes of ticks before `before_ts`; ahead of their rows, which are then no longer looked for.

        Those of a clock that was set back stay until the time of their rows has passed; ones that a wrong clock filed
        further ahead than `MAX_AHEAD_S` do not keep all that came after them.
        """
        with explained(self.location), self._connection.begin():
            kept = t.batch.c.ts.between(before_ts, self.last.ts + MAX_AHEAD_S)
            first = select(func.min(t.batch.c.seq)).where(kept).scalar_subquery()
            last = select(func.max(t.batch.c.seq)).scalar_subquery()
            self._connection.execute(delete(t.batch).where(t.batch.c.seq < func.coalesce(first, last)))
