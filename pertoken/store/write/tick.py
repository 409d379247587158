"""One tick into the tables: samples, identities that are new or due to be noted, counters and events.

Samples and counters, of which each tick has many, go by `store.connect.bulk`; all else by SQLAlchemy.
"""

import re
from collections import defaultdict
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, update

from pertoken.store.connect.bulk import run_many
from pertoken.store.connect.open import upsert
from pertoken.store.integrity.checksums import insert_rows
from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.ids import stable_id
from pertoken.store.schema.samples import SAMPLES
from pertoken.store.write import outbox
from pertoken.store.write.dirty import Mark, mark
from pertoken.store.write.shares import devices_of, folded
from pertoken.store.write.upserts import adding, columns_of, replacing

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
        self._devices_of = devices_of(connection)
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
                before, at = self._seen.get(key, (None, 0))
                if (value is not before and value != before) or not 0 <= tick.ts - at < SEEN_S:
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
            stored = SAMPLES[kind]
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
                for owner_id in sorted({one.owner_id for one in tick.capabilities})
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

    def _put(self, table: Table, values: list[dict[str, Any]], kept: tuple[str, ...] = ()) -> None:
        if values:
            self._connection.execute(replacing(self._dialect, table, kept), values)
