"""Writing telemetry: one connection, one transaction for a tick, dirty marks in that same transaction."""

from collections import defaultdict
from dataclasses import asdict, fields
from functools import cache
from types import TracebackType
from typing import Any

from sqlalchemy import Insert, Table, delete, func, insert, select, update

from pertoken.provenance import Provenance
from pertoken.store import outbox, rows
from pertoken.store import telemetry as t
from pertoken.store.ids import stable_id
from pertoken.store.open import explained, upsert, writing
from pertoken.store.place import Place
from pertoken.store.rollup import roll_up

_SAMPLES: dict[type, tuple[Insert, str | None, str | None]] = {
    rows.DeviceSample: (insert(t.device_sample), "device", "device_id"),
    rows.HostSample: (insert(t.host_sample), "host", "host_id"),
    rows.AgentSample: (insert(t.agent_sample), None, None),
    rows.DeploymentSample: (insert(t.deployment_sample), "deployment", "epoch_id"),
    rows.DeviceShare: (insert(t.device_share), "share", "device_id"),
    rows.HistogramSample: (insert(t.histogram_sample), "histogram", "epoch_id"),
    rows.EngineCounterSample: (insert(t.engine_counter_sample), "engine_counter", "epoch_id"),
}
"""Value type -> how it is stored, the roll-up it makes dirty, and that roll-up's owner."""
SEEN_S = 60
"""Least time between two notes that something is still there and still the same."""


_LEARNED = {"instance_type", "region", "purchase"}
"""Columns that an agent may fail to learn anew after a restart: unknown does not replace what was known."""


def bucket(ts: int, seconds: int) -> int:
    """Start of the bucket a row ending at `ts` belongs to: a row at 60 covers the time up to 60, so bucket 0."""
    return (ts - 1) // seconds * seconds


class Writer:
    """The one writer of a folder's telemetry. All calls come from the thread that opened it."""

    def __init__(self, place: Place) -> None:
        """Open `place` for writing. Raises StoreError if it cannot be opened."""
        self.place = place
        with explained(place):
            self._connection = writing(place, "telemetry").connect()
        self._dialect = self._connection.dialect.name
        self._seen: dict[int, tuple[object, int]] = {}
        """By id: an identity as it was last written, and that tick's `ts`."""
        self._bucket_sets: frozenset[int] = frozenset()
        """Those that are stored already."""
        with explained(place), self._connection.begin():
            self._ships = outbox.marking(self._connection)

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

    def commit(self, tick: rows.Tick) -> None:
        """Store a tick whole or not at all. Raises StoreError, with nothing of it stored."""
        with explained(self.place), self._connection.begin():
            seen = self._identities(tick)
            self._samples(tick)
            events = self._memory(tick)
            if self._ships:
                outbox.mark(self._connection, self._marks(tick, events, identities=bool(seen)))
        self._seen |= seen
        self._bucket_sets |= tick.bucket_sets.keys()

    def roll_up(self, *, hours: bool = True) -> int:
        """Bring roll-ups (of minutes alone, without `hours`) up to date with every row stored; returns how many."""
        with explained(self.place):
            return roll_up(self._connection, hours=hours, changed=outbox.mark if self._ships else None)

    def ship(self, on: bool, *, raw: bool = False) -> None:
        """Mark from now on what is to be shipped to a server (with ticks, where `raw`), or no longer."""
        with explained(self.place), self._connection.begin():
            outbox.switch(self._connection, on, raw)
        self._ships = on

    def shipped(self, seq: int, *, at_most: int) -> int:
        """Let go of up to `at_most` marks that the server holds; returns how many."""
        with explained(self.place), self._connection.begin():
            return outbox.settle(self._connection, seq, at_most)

    def bound_spool(self, most: int) -> tuple[int, int]:
        """Keep at most so many marks: (of ticks given up, of roll-ups left to the comparison with the server)."""
        with explained(self.place), self._connection.begin():
            return outbox.bound(self._connection, most)

    def counters(self) -> tuple[rows.CounterState, ...]:
        """The last state of every counter."""
        with explained(self.place), self._connection.begin():
            found = self._connection.execute(select(t.counter_state)).mappings()
            return tuple(rows.CounterState(**row) for row in found)

    def boot(self, host_id: int) -> tuple[str | None, int | None]:
        """(boot id, boot time in Unix ms) under which this host's rows were last written."""
        with explained(self.place), self._connection.begin():
            query = select(t.host.c.boot_id, t.host.c.boot_ms).where(t.host.c.host_id == host_id)
            found = self._connection.execute(query).first()
            return (found.boot_id, found.boot_ms) if found else (None, None)

    def begun(self, host_id: int) -> dict[int, int]:
        """Engines whose process began while this host was recorded, and when (Unix ms)."""
        with explained(self.place), self._connection.begin():
            found = self._connection.execute(
                select(t.engine.c.engine_id, t.engine.c.process_start_ms)
                .join(t.host, t.host.c.host_id == t.engine.c.host_id)
                .where(t.engine.c.host_id == host_id, t.engine.c.process_start_ms >= t.host.c.first_ts * 1000)
            )
            return {engine_id: start_ms for engine_id, start_ms in found}

    def open_epochs(self, host_id: int) -> tuple[rows.EpochRow, ...]:
        """Epochs of this host that have not ended, newest last."""
        with explained(self.place), self._connection.begin():
            connection = self._connection
            found = connection.execute(
                select(t.epoch)
                .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
                .where(t.deployment.c.host_id == host_id, t.epoch.c.end_ts.is_(None))
                .order_by(t.epoch.c.start_ts)
            ).mappings()
            devices = defaultdict(list)
            for epoch_id, device_id in connection.execute(select(t.epoch_device)):
                devices[epoch_id].append(device_id)
            return tuple(rows.EpochRow(**row, device_ids=tuple(sorted(devices[row["epoch_id"]]))) for row in found)

    def last_ts(self, host_id: int) -> int | None:
        """`ts` of this host's newest row; None for a new host."""
        with explained(self.place), self._connection.begin():
            found: int | None = self._connection.execute(
                select(t.host_sample.c.ts)
                .where(t.host_sample.c.host_id == host_id)
                .order_by(t.host_sample.c.ts.desc())
                .limit(1)
            ).scalar()
            return found

    def known_owners(self, host_id: int) -> frozenset[int]:
        """This host, its devices and its deployments, as far as they were ever stored."""
        with explained(self.place), self._connection.begin():
            return frozenset(
                self._connection.execute(
                    select(t.host.c.host_id)
                    .where(t.host.c.host_id == host_id)
                    .union_all(
                        select(t.device.c.device_id).where(t.device.c.host_id == host_id),
                        select(t.deployment.c.deployment_id).where(t.deployment.c.host_id == host_id),
                    )
                ).scalars()
            )

    def capabilities(self) -> tuple[rows.Capability, ...]:
        """What could and could not be read when that was last noted."""
        names = [each.name for each in fields(rows.Capability)]
        with explained(self.place), self._connection.begin():
            found = self._connection.execute(select(*(t.capability.c[name] for name in names))).mappings()
            return tuple(rows.Capability(**row) for row in found)

    def delete_before(self, table: Table, ts: int, step_s: int) -> int:
        """Delete a table's rows before `ts`, oldest first, `step_s` seconds of them in one transaction."""
        deleted = 0
        with explained(self.place):
            while True:
                with self._connection.begin():
                    oldest = self._connection.execute(select(func.min(table.c.ts))).scalar()
                    if oldest is None or oldest >= ts:
                        return deleted
                    until = min(ts, oldest + step_s)
                    deleted += self._connection.execute(delete(table).where(table.c.ts < until)).rowcount

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
                columns = _columns(value)
                key = columns[next(iter(columns))]
                before, at = self._seen.get(key, (None, 0))
                if value != before or not 0 <= tick.ts - at < SEEN_S:
                    due.append({**columns, "first_ts": tick.ts, "last_ts": tick.ts})
                    written[key] = value, tick.ts
            self._put(table, due, kept=("first_ts",))
        for epoch in tick.epochs:
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
        return written

    def _samples(self, tick: rows.Tick) -> None:
        by_type = defaultdict(list)
        dirty: set[tuple[str, int, int]] = set()
        for sample in tick.samples:
            by_type[type(sample)].append(_columns(sample))
            _, rollup, owner = _SAMPLES[type(sample)]
            if rollup is not None and owner is not None:
                dirty.add((f"{rollup}_1m", getattr(sample, owner), bucket(sample.ts, 60)))
        for kind, values in by_type.items():
            self._connection.execute(_SAMPLES[kind][0], values)
        self._add_missing(
            t.histogram_set,
            [
                {"bucket_set_id": key, "upper_bounds": ",".join(map(repr, bounds))}
                for key, bounds in tick.bucket_sets.items()
                if key not in self._bucket_sets
            ],
        )
        self._add_missing(
            t.dirty,
            [{"rollup": name, "owner_id": owner_id, "ts": ts} for name, owner_id, ts in sorted(dirty)],
        )

    def _marks(self, tick: rows.Tick, events: list[int], *, identities: bool) -> list[outbox.Mark]:
        return [
            *([(outbox.IDENTITY.name, tick.host.host_id, 0)] if identities else []),
            *((outbox.EPOCH.name, each.deployment_id, 0) for each in tick.epochs),
            *((outbox.HISTOGRAM_SET.name, each, 0) for each in tick.bucket_sets if each not in self._bucket_sets),
            *((outbox.CAPABILITY.name, each, 0) for each in sorted({one.owner_id for one in tick.capabilities})),
            *((outbox.EVENT.name, each, 0) for each in events),
        ]

    def _memory(self, tick: rows.Tick) -> list[int]:
        """Counters, capabilities and events; returns the ids of the events."""
        events = []
        for owner_id, series in tick.forgotten:
            self._connection.execute(
                delete(t.counter_state).where(
                    t.counter_state.c.owner_id == owner_id, t.counter_state.c.series == series
                )
            )
        self._put(t.counter_state, [_columns(each) for each in tick.counters])
        self._put(t.capability, [{**_columns(each), "since_ts": tick.ts} for each in tick.capabilities])
        for each in tick.events:
            subject = each.subject_id or tick.host.host_id
            event_id = stable_id("event", tick.host.host_id, each.kind, subject, each.message, tick.ts // 3600)
            events.append(event_id)
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
            self._connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["event_id"], set_={"last_ts": tick.ts, "count": t.event.c.count + 1}
                )
            )
        return events

    def _put(self, table: Table, values: list[dict[str, Any]], kept: tuple[str, ...] = ()) -> None:
        if values:
            self._connection.execute(_replacing(self._dialect, table, kept), values)

    def _add_missing(self, table: Table, values: list[dict[str, Any]]) -> None:
        if values:
            self._connection.execute(_adding(self._dialect, table), values)


def _columns(sample: Any) -> dict[str, Any]:
    # asdict() copies deeply and costs more than the rest of the write; samples are flat.
    return {
        name: int(value) if isinstance(value := getattr(sample, name), Provenance) else value
        for name in sample.__slots__
    }


@cache
def _replacing(dialect: str, table: Table, kept: tuple[str, ...]) -> Any:
    """INSERT .. ON CONFLICT: every column is replaced but the key and those `kept`. Built once: it costs more to
    build than to run."""
    keys = [column.name for column in table.primary_key]
    statement = upsert(dialect, table)
    changed = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in (*keys, *kept)}
    for name in _LEARNED & changed.keys():
        changed[name] = func.coalesce(changed[name], table.c[name])
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


@cache
def _adding(dialect: str, table: Table) -> Any:
    return upsert(dialect, table).on_conflict_do_nothing()
