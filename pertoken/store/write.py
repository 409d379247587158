"""Writing telemetry: one connection, one transaction for a tick, dirty marks in that same transaction."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from operator import attrgetter
from types import TracebackType
from typing import Any

from sqlalchemy import Table, delete, func, insert, select, update

from pertoken.errors import StoreError
from pertoken.store import rows
from pertoken.store import telemetry as t
from pertoken.store.before import Before
from pertoken.store.ids import stable_id
from pertoken.store.open import check_revision, explained, put_rows, revision, upsert, writing
from pertoken.store.place import Place
from pertoken.store.rollup import HOUR, MINUTE, roll_up
from pertoken.store.samples import SAMPLES
from pertoken.store.seal import SEALED, Sealed, Seals, chained
from pertoken.store.upserts import adding, columns_of, replacing
from pertoken.store.witness import Acknowledged, Witness, acknowledged

_STATE = attrgetter(*(column.name for column in t.counter_state.columns))
SEEN_S = 60
"""Least time between two notes that something is still there and still the same."""


def bucket(ts: int, seconds: int) -> int:
    """Start of the bucket a row ending at `ts` belongs to: a row at 60 covers the time up to 60, so bucket 0."""
    return (ts - 1) // seconds * seconds


class Writer:
    """The one writer of a folder's telemetry. All calls come from the thread that opened it."""

    def __init__(self, place: Place, max_bytes: int | None = None) -> None:
        """Open `place` for writing; its data file does not grow beyond `max_bytes`.

        Raises StoreError if it cannot be opened or is of another schema, CorruptStore if it is damaged.
        """
        self.place = place
        with explained(place):
            engine = writing(place, "telemetry")
            check_revision(revision(engine, "telemetry"), "telemetry", place)
            self._connection = engine.connect()
        self._dialect = self._connection.dialect.name
        self._seen: dict[int, tuple[object, int]] = {}
        """By id: an identity as it was last written, and that tick's `ts`."""
        self._bucket_sets: frozenset[int] = frozenset()
        """Those that are stored already."""
        self._seals: Seals | None = None
        """Of SQLite only: PostgreSQL keeps checksums of its pages."""
        self._last = Acknowledged(0, 0)
        self._chain = 0
        self.lost: tuple[Acknowledged, Acknowledged] | None = None
        """(last batch found, last batch acknowledged) where the second is not there any more."""
        if self._dialect == "sqlite":
            try:
                with explained(place):
                    self._cap(max_bytes)
                self._open_seals()
            except BaseException:
                self._connection.close()
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
            raw = self._connection.connection.driver_connection
            if raw is not None:
                # A reader in the middle of a read keeps WAL on; the next clean stop turns it off.
                raw.execute("PRAGMA busy_timeout=500")
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                raw.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()
        if self._seals is not None:
            self._witness.close()

    def abandon(self) -> None:
        """Let go of a damaged database without touching it again."""
        with suppress(Exception):
            self._connection.invalidate()
        with suppress(Exception):
            self._connection.close()
        if self._seals is not None:
            self._witness.close()

    def _cap(self, max_bytes: int | None) -> None:
        pages = 2**32 - 2  # as many as SQLite knows: a cap that is no longer set is forgotten
        if max_bytes is not None:
            pages = max_bytes // int(self._connection.exec_driver_sql("PRAGMA page_size").scalar_one())
        self._connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        self._connection.rollback()

    def _open_seals(self) -> None:
        file = self.place.file("telemetry")
        seals = Seals(self._connection)
        with explained(self.place), self._connection.begin():
            newest = self._connection.execute(select(t.batch).order_by(t.batch.c.seq.desc()).limit(1)).first()
            # Of an older schema: what is there counts as it is found, once.
            if newest is None and self._connection.execute(select(t.seal.c.name).limit(1)).first() is None:
                seals.seal_all()
        if newest is not None:
            self._last, self._chain = Acknowledged(newest.seq, newest.ts), newest.chain
        told = acknowledged(file)
        if told is not None and told.seq > self._last.seq:
            # The gap stays in the sequence: who checks it later finds it too.
            self.lost, self._last = (self._last, told), told
        try:
            self._witness = Witness(file)
        except OSError as error:
            raise StoreError(f"{self.place}: cannot be written: {error.strerror}") from None
        self._seals = seals

    def flush_witness(self) -> None:
        """Let the disk have the witness; called now and then, since no transaction waits for it."""
        if self._seals is not None:
            self._witness.flush()

    @property
    def last(self) -> Acknowledged:
        """The last batch stored; sequence 0 before the first."""
        return self._last

    def commit(self, tick: rows.Tick) -> None:
        """Store a tick whole or not at all. Raises StoreError, with nothing of it stored."""
        with self._transaction(tick.ts):
            seen = self._identities(tick)
            self._samples(tick)
            self._memory(tick)
        self._seen |= seen
        self._bucket_sets |= tick.bucket_sets.keys()

    def roll_up(self, *, hours: bool = True) -> int:
        """Bring roll-ups (of minutes alone, without `hours`) up to date with every row stored; returns how many.

        Without `hours` those keep their marks: an hour is read by its minutes until it is over.
        """
        done = 0
        for seconds in (MINUTE, HOUR) if hours else (MINUTE,):
            with self._transaction():
                done += roll_up(self._connection, seconds, self._seals)
        return done

    @contextmanager
    def _transaction(self, ts: int | None = None) -> Iterator[None]:
        """One batch: a transaction with the seals of what changes in it and its place in the sequence.

        Raises StoreError, with nothing of it stored. Without the `ts` of a tick it is that of the last one, and where
        nothing changed there is no batch.
        """
        seals, done, chain = self._seals, self._last, self._chain
        try:
            with explained(self.place), self._connection.begin():
                if seals is not None:
                    seals.begin()
                yield
                if seals is not None:
                    n, crc_sum = seals.samples
                    if seals.store() or ts is not None:
                        done = Acknowledged(done.seq + 1, done.ts if ts is None else ts)
                        chain = chained(chain, done.seq, done.ts, n, crc_sum)
                        put_rows(
                            self._connection,
                            "INSERT INTO batch (seq, ts, row_count, crc_sum, chain) VALUES (?, ?, ?, ?, ?)",
                            [(done.seq, done.ts, n, crc_sum, chain)],
                        )
        except BaseException:
            if seals is not None:
                seals.discard()
            raise
        if done is not self._last:
            self._last, self._chain = done, chain
            self._witness.write(done)

    @property
    def before(self) -> Before:
        """What was stored before, for an agent that starts."""
        return Before(self.place, self._connection)

    def restore(self, sealed: Sealed, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows as they are, in one transaction; returns how many were not there yet.

        Raises ValueError, with nothing stored, if a row is there with other values.
        """
        names, keys = sealed.columns, sealed.keys
        at = [names.index(key) for key in keys]
        where = [tuple(row[each] for each in at) for row in rows]
        with self._transaction(self._last.ts):
            if self._seals is None:
                raise ValueError("rows are restored into a folder")
            with self._seals.changing(sealed, keys, where):
                new = self._connection.exec_driver_sql(
                    f"INSERT INTO {sealed.table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
                    "ON CONFLICT DO NOTHING",
                    list(rows),
                ).rowcount
            for key, row, found in zip(where, rows, self._seals.rows(sealed, keys, where), strict=True):
                if row != found:
                    named = ", ".join(f"{name} {value}" for name, value in zip(keys, key, strict=True))
                    raise ValueError(f"the row of {named} is there already, with other values")
        # What these two remember of their tables was changed behind them.
        self._seals.counters.forget()
        self._seals.marks.forget()
        return new

    def oldest(self, sealed: Sealed) -> int | None:
        """Start of the oldest stretch of which a table holds rows."""
        with explained(self.place), self._connection.begin():
            found: int | None = self._connection.execute(
                select(func.min(t.seal.c.ts)).where(t.seal.c.name == sealed.table.name)
            ).scalar()
            return found

    def oldest_mark(self) -> int | None:
        """Start of the oldest bucket that is to be computed anew."""
        with explained(self.place), self._connection.begin():
            found: int | None = self._connection.execute(select(func.min(t.dirty.c.ts))).scalar()
            return found

    def checkpoint(self) -> None:
        """Write the log back into the data file, so that it gives up its room; less of it while someone reads."""
        raw = self._connection.connection.driver_connection
        with explained(self.place):
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]  # outside of any transaction

    def delete_oldest(self, sealed: Sealed, before: int) -> int | None:
        """Delete the oldest stretch of a table's rows with its seals, in one transaction, if it ends by `before`.

        Returns how many rows those were; None if nothing is that old.
        """
        name, ask = sealed.table.name, self._connection.exec_driver_sql
        oldest = self.oldest(sealed)
        if oldest is None or oldest + sealed.span_s > before:
            return None
        until = oldest + sealed.span_s
        with self._transaction(self._last.ts):
            # By owner: a table is keyed by that first, and would be read whole for its oldest rows.
            deleted = ask(
                f"DELETE FROM {name} WHERE ts < ? AND {sealed.owner} IN "
                "(SELECT DISTINCT owner_id FROM seal WHERE name = ?)",
                (until, name),
            ).rowcount
            ask("DELETE FROM seal WHERE name = ? AND ts < ?", (name, until))
        return deleted

    def delete_batches(self, before: int) -> None:
        """Delete the notes of ticks before `before`; ahead of their rows, which are then no longer looked for."""
        with explained(self.place), self._connection.begin():
            first = select(func.min(t.batch.c.seq)).where(t.batch.c.ts >= before).scalar_subquery()
            last = select(func.max(t.batch.c.seq)).scalar_subquery()
            self._connection.execute(delete(t.batch).where(t.batch.c.seq < func.coalesce(first, last)))

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
                before, at = self._seen.get(key, (None, 0))
                if (value is not before and value != before) or not 0 <= tick.ts - at < SEEN_S:
                    due.append({**columns_of(value), "first_ts": tick.ts, "last_ts": tick.ts})
                    written[key] = value, tick.ts
            self._put(table, due, kept=("first_ts",))
        for epoch in tick.epochs:
            with (
                self._changing(t.epoch, ("deployment_id",), [(epoch.deployment_id,)]),
                self._changing(t.epoch_device, ("epoch_id",), [(epoch.epoch_id,)]),
            ):
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
                insert(t.epoch_device), [{"epoch_id": epoch.epoch_id, "device_id": each} for each in devices]
            )

    def _samples(self, tick: rows.Tick) -> None:
        by_type = defaultdict(list)
        for sample in tick.samples:
            by_type[type(sample)].append(sample)
        dirty: set[tuple[str, int, int]] = set()
        for kind, samples in by_type.items():
            stored = SAMPLES[kind]
            values = [stored.values(sample) for sample in samples]
            if self._seals is None:
                names = [column.name for column in stored.table.columns]
                self._connection.execute(insert(stored.table), [dict(zip(names, each, strict=True)) for each in values])
            else:
                put_rows(self._connection, stored.insert, values)
                self._seals.add_samples(SEALED[stored.table.name], values)
            if stored.rollup is not None:
                name = f"{stored.rollup}_1m"
                dirty.update((name, row[0], bucket(each.ts, 60)) for row, each in zip(values, samples, strict=True))
        self._add_missing(
            t.histogram_set,
            [
                {"bucket_set_id": key, "upper_bounds": ",".join(map(repr, bounds))}
                for key, bounds in tick.bucket_sets.items()
                if key not in self._bucket_sets
            ],
        )
        self._mark(dirty)

    def _mark(self, dirty: set[tuple[str, int, int]]) -> None:
        if self._seals is None:
            marks = [{"rollup": name, "owner_id": owner_id, "ts": ts} for name, owner_id, ts in sorted(dirty)]
            if marks:
                self._connection.execute(adding(self._dialect, t.dirty), marks)
        elif missing := self._seals.marks.missing(dirty):
            put_rows(self._connection, "INSERT INTO dirty (rollup, owner_id, ts) VALUES (?, ?, ?)", missing)
            self._seals.marks.put(missing)

    def _memory(self, tick: rows.Tick) -> None:
        for owner_id, series in tick.forgotten:
            self._connection.execute(
                delete(t.counter_state).where(
                    t.counter_state.c.owner_id == owner_id, t.counter_state.c.series == series
                )
            )
        self._count(tick)
        self._put(t.capability, [{**columns_of(each), "since_ts": tick.ts} for each in tick.capabilities])
        for each in tick.events:
            subject = each.subject_id or tick.host.host_id
            event_id = stable_id("event", tick.host.host_id, each.kind, subject, each.message, tick.ts // 3600)
            statement = upsert(self._dialect, t.event).values(
                event_id=event_id,
                host_id=tick.host.host_id,
                ts=tick.ts,
                last_ts=tick.ts,
                count=1,
                kind=each.kind,
                subject_id=each.subject_id,
                message=each.message,
            )
            with self._changing(t.event, ("event_id",), [(event_id,)]):
                self._connection.execute(
                    statement.on_conflict_do_update(
                        index_elements=["event_id"], set_={"last_ts": tick.ts, "count": t.event.c.count + 1}
                    )
                )

    def _count(self, tick: rows.Tick) -> None:
        if self._seals is None:
            if tick.counters:
                statement = replacing(self._dialect, t.counter_state, ())
                self._connection.execute(statement, [columns_of(each) for each in tick.counters])
            return
        states = [_STATE(each) for each in tick.counters]
        self._seals.counters.drop(tick.forgotten)
        self._seals.counters.put(states)
        if states:
            put_rows(
                self._connection,
                "INSERT OR REPLACE INTO counter_state (owner_id, series, value, process_start_ms, ts) "
                "VALUES (?, ?, ?, ?, ?)",
                states,
            )

    def _changing(
        self, table: Table, where: tuple[str, ...], values: list[tuple[Any, ...]]
    ) -> AbstractContextManager[None]:
        if self._seals is None:
            return nullcontext()
        return self._seals.changing(SEALED[table.name], where, values)

    def _by_key(self, table: Table, values: list[dict[str, Any]]) -> AbstractContextManager[None]:
        keys = tuple(column.name for column in table.primary_key)
        return self._changing(table, keys, [tuple(row[key] for key in keys) for row in values])

    def _put(self, table: Table, values: list[dict[str, Any]], kept: tuple[str, ...] = ()) -> None:
        if values:
            with self._by_key(table, values):
                self._connection.execute(replacing(self._dialect, table, kept), values)

    def _add_missing(self, table: Table, values: list[dict[str, Any]]) -> None:
        if values:
            with self._by_key(table, values):
                self._connection.execute(adding(self._dialect, table), values)
