"""One tick into the tables: samples, identities that are new or due to be noted, counters and events.

On SQLite rows go by the driver's own hand and are counted in seals; a server takes the same rows by SQLAlchemy.
"""

import re
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, update

from pertoken.store import outbox, rows
from pertoken.store import telemetry as t
from pertoken.store.dirty import Mark, mark
from pertoken.store.ids import stable_id
from pertoken.store.open import put_rows, upsert
from pertoken.store.samples import SAMPLES
from pertoken.store.seal import SEALED, Seals
from pertoken.store.shares import devices_of, folded
from pertoken.store.upserts import adding, columns_of, replacing

_STATE = attrgetter(*(column.name for column in t.counter_state.columns))
SEEN_S = 60
"""Least time between two notes that something is still there and still the same."""


def bucket(ts: int, seconds: int) -> int:
    """Start of the bucket a row ending at `ts` belongs to: a row at 60 covers the time up to 60, so bucket 0."""
    return (ts - 1) // seconds * seconds


MAX_MESSAGE = 1000
"""Characters of an event's message that are stored."""
_FIGURES = re.compile(r"\d+(?:[.,:]\d+)*")


def _event_id(tick: rows.Tick, event: rows.Event) -> int:
    """The same for repeats within an hour, whatever figures their messages hold: a changing one makes no new row."""
    state = _FIGURES.sub("#", event.message) if event.state is None else event.state
    subject = event.subject_id or tick.host.host_id
    return stable_id("event", tick.host.host_id, event.kind, subject, state, tick.ts // 3600)


class TickWriter:
    """Puts ticks into the tables of one connection, within its transactions, and knows what need not be said again."""

    def __init__(self, connection: Connection, seals: Seals | None) -> None:
        """`connection` is in a transaction, now and at each `put`."""
        self._connection, self._seals = connection, seals
        self._dialect = connection.dialect.name
        self._seen: dict[int, tuple[object, int]] = {}
        """By id: an identity as it was last written, and that tick's `ts`."""
        self._bucket_sets: frozenset[int] = frozenset()
        """Those that are stored already."""
        self._devices_of = devices_of(connection)
        self._put_now: dict[int, tuple[object, int]] = {}

    def put(self, tick: rows.Tick) -> list[outbox.Mark]:
        """Insert a tick; returns what of it is to be shipped beside roll-ups. Followed by `stored` where it was."""
        self._put_now = self._identities(tick)
        events = self._memory(tick, self._samples(tick))
        return self._marks(tick, events, identities=bool(self._put_now))

    def stored(self, tick: rows.Tick) -> None:
        """The tick put last was committed."""
        self._seen |= self._put_now
        self._bucket_sets |= tick.bucket_sets.keys()
        self._devices_of |= {each.epoch_id: each.device_ids for each in tick.epochs}

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

    def _samples(self, tick: rows.Tick) -> list[rows.Event]:
        """Insert the samples; returns what to report of them."""
        events: list[rows.Event] = []
        by_type = defaultdict(list)
        devices = {**self._devices_of, **{each.epoch_id: each.device_ids for each in tick.epochs}}
        for sample in folded(tick.samples, devices):
            by_type[type(sample)].append(sample)
        dirty: set[Mark] = set()
        for kind, samples in by_type.items():
            stored = SAMPLES[kind]
            by_key: dict[Any, tuple[Any, ...]] = {}
            for sample in samples:
                row = stored.values(sample)
                by_key.setdefault(stored.key(row), row)
            values = list(by_key.values())
            if len(values) < len(samples):
                # A defect of whoever made the tick costs the rows of that owner, never the tick.
                events.append(
                    rows.Event("rows_twice", f"{stored.table.name}: of two rows with one key the first is kept")
                )
            if self._seals is None:
                names = [column.name for column in stored.table.columns]
                self._connection.execute(insert(stored.table), [dict(zip(names, each, strict=True)) for each in values])
            else:
                put_rows(self._connection, stored.insert, values)
                self._seals.add_samples(SEALED[stored.table.name], values)
            if stored.rollup is not None:
                name = f"{stored.rollup}_1m"
                dirty.update((name, owner, bucket(ts, 60)) for owner, ts in map(stored.owner_and_ts, values))
        self._add_missing(
            t.histogram_set,
            [
                {"bucket_set_id": key, "upper_bounds": ",".join(map(repr, bounds))}
                for key, bounds in tick.bucket_sets.items()
                if key not in self._bucket_sets
            ],
        )
        mark(self._connection, dirty, self._seals)
        return events

    def _marks(self, tick: rows.Tick, events: list[int], *, identities: bool) -> list[outbox.Mark]:
        return [
            *([(outbox.IDENTITY.name, tick.host.host_id, 0)] if identities else []),
            *((outbox.EPOCH.name, each.deployment_id, 0) for each in tick.epochs),
            *((outbox.HISTOGRAM_SET.name, each, 0) for each in tick.bucket_sets if each not in self._bucket_sets),
            *((outbox.CAPABILITY.name, each, 0) for each in sorted({one.owner_id for one in tick.capabilities})),
            *((outbox.EVENT.name, each, 0) for each in events),
        ]

    def _memory(self, tick: rows.Tick, more: list[rows.Event]) -> list[int]:
        """Counters, capabilities and events, `more` events too; returns the ids of the events."""
        events = []
        for owner_id, series in tick.forgotten:
            self._connection.execute(
                delete(t.counter_state).where(
                    t.counter_state.c.owner_id == owner_id, t.counter_state.c.series == series
                )
            )
        self._count(tick)
        self._put(t.capability, [{**columns_of(each), "since_ts": tick.ts} for each in tick.capabilities])
        for each in (*tick.events, *more):
            events.append(event_id := _event_id(tick, each))
            message = each.message[:MAX_MESSAGE]
            statement = upsert(self._dialect, t.event).values(
                event_id=event_id,
                host_id=tick.host.host_id,
                ts=tick.ts,
                last_ts=tick.ts,
                count=1,
                kind=each.kind,
                subject_id=each.subject_id,
                message=message,
            )
            repeat = {"last_ts": tick.ts, "count": t.event.c.count + 1, "message": message}
            with self._changing(t.event, ("event_id",), [(event_id,)]):
                self._connection.execute(statement.on_conflict_do_update(index_elements=["event_id"], set_=repeat))
        return events

    def _count(self, tick: rows.Tick) -> None:
        if self._seals is None:
            if tick.counters:
                statement = replacing(self._dialect, t.counter_state, ())
                self._connection.execute(statement, [columns_of(each) for each in tick.counters])
            return
        states = list({(each.owner_id, each.series): _STATE(each) for each in tick.counters}.values())
        self._seals.counters.drop(tick.forgotten)
        self._seals.counters.put(states)
        if states:
            put_rows(
                self._connection,
                "INSERT OR REPLACE INTO counter_state (owner_id, series, value, process_start_ms, ts, life) "
                "VALUES (?, ?, ?, ?, ?, ?)",
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
