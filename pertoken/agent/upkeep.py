"""Upkeep of the store beside the ticks: room, age, and the check of stored rows.

Everything that writes is called by the thread that ticks; the check has a thread and a read-only connection of its own.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from pertoken.agent.clocks import PurgeClock
from pertoken.config import Settings
from pertoken.errors import FullStore
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.sqlite import log_file
from pertoken.store.integrity.checksums import MISSING
from pertoken.store.integrity.verify import StoredDifference, steps, verify
from pertoken.store.schema.rows import Event, Tick
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.write.retention import MAX_STEPS, Ages, Ballast, free_space, purging
from pertoken.store.write.writer import Writer
from pertoken.units import format_utc

log = logging.getLogger("pertoken.agent")
PASS_S = 480.0
"""A pass over everything stored is spread over this time at most: steps that come late follow each other at once."""
STEPS_AT_ONCE = 8
"""Steps of a pass between two pauses: a step that begins after a pause costs several times one that follows another."""
PAUSE_S = 1.6
"""Longest pause in a pass, so that a small database is not checked for ten minutes."""
MAX_LOG_BYTES = 64 * 2**20
"""Size of the write-ahead log from which on an event reports it: it is a few MB while nobody keeps a snapshot."""
MAX_REPORTED = 20
"""Faults of one pass that become events of their own; more are counted."""
T = TypeVar("T")


class Upkeep:
    """The upkeep of one folder's telemetry, over the agent's one writer."""

    def __init__(
        self,
        where: StoreLocation,
        writer: Writer,
        settings: Settings,
        events: tuple[Event, ...] = (),
        clock: Callable[[], float] = time.monotonic,
        purge_ts: Callable[[], int | None] | None = None,
    ) -> None:
        """`events` are stored with the first tick. `purge_ts` is the time by which old rows are deleted
        (`agent.clocks`)."""
        self._where, self._writer, self.settings, self._clock = where, writer, settings, clock
        self._purge_ts = PurgeClock().now_ts if purge_ts is None else purge_ts
        self._ballast = Ballast(where.file("telemetry").parent)
        self._events = list(events)
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._deleting: Iterator[int] = iter(())
        self._hour = 0
        if writer.lost is not None:
            stored, acknowledged = writer.lost
            until = format_utc(acknowledged.ts)
            batches = acknowledged.seq - stored.seq
            self._report(
                "store_lost", f"{batches} earlier batches are gone, up to the tick at {until}: the log was cut"
            )
        if writer.high_water_mark_missing:
            self._report("store_unwitnessed", MISSING)
        self._refused = 0
        """Ticks refused because the disk is full, since `_refused_ts`."""
        self._refused_ts = 0
        self._log: tuple[int, int] | None = None
        """Which file the write-ahead log is, as last seen: (device, inode)."""

    def commit(self, tick: Tick) -> None:
        """Store a tick with pending events, making room if there is none. Raises StoreError."""
        with self._lock:
            pending = tuple(self._events)
        if more := (*pending, *self._unavailable(tick.ts)):
            tick = replace(tick, events=(*tick.events, *more))
        try:
            self._with_room(lambda: self._writer.commit(tick))
        except FullStore:
            self._refused_ts = self._refused_ts if self._refused else tick.ts
            self._refused += 1
            raise
        self._refused = 0
        with self._lock:
            del self._events[: len(pending)]

    def _unavailable(self, ts: int) -> tuple[Event, ...]:
        """Return the event of ticks that were not stored, once there is room again at `ts`."""
        if not self._refused:
            return ()
        first, last = (f"{datetime.fromtimestamp(edge, UTC):%Y-%m-%d %H:%M:%SZ}" for edge in (self._refused_ts, ts))
        text = f"no room left and nothing old to delete: {self._refused} ticks from {first} to {last} were not stored"
        return (Event("store_full", text, state=f"refused from {first}"),)

    def roll_up(self, *, hours: bool) -> None:
        """Bring roll-ups up to date, making room if there is none. Raises StoreError."""
        self._with_room(lambda: self._writer.roll_up(hours=hours))
        for bucket in self._writer.quarantined():
            self._report("rollup_quarantined", f"{bucket}", bucket.owner_id, state=bucket.rollup)

    def delete_old(self, ts: int) -> None:
        """Take one step of deleting old rows; a pass over all of them begins once an hour. `ts`: of the last tick."""
        purge_ts = self._purge_ts()
        if purge_ts is None:
            self._deleting = iter(())
        elif self._hour != purge_ts // HOUR:
            self._hour = purge_ts // HOUR
            # A tick that is filed at another time than it is by the clock lets nothing be deleted by that clock.
            now_ts = min(purge_ts, ts)
            self._deleting = purging(self._writer, ages(self.settings), now_ts, max_steps=MAX_STEPS)
        next(self._deleting, None)
        self._tell_unshipped()

    def tidy(self) -> None:
        """Note how far the store reaches, keep the number of events bounded, and keep room in reserve."""
        if self._writer.flush_high_water_mark():
            self._report("store_unwitnessed", MISSING)
        self._writer.bound_events()
        self._ballast.hold()
        self._watch_log()

    def _watch_log(self) -> None:
        """Report a write-ahead log that was deleted or cannot be written back, and begin another for a deleted one."""
        file = log_file(self._where.file("telemetry"))
        try:
            status = file.stat()
        except FileNotFoundError:
            status = None
        identity = None if status is None else (status.st_dev, status.st_ino)
        if self._log is not None and identity != self._log:
            restarted = self._writer.restart_log()
            self._log = None if restarted else self._log
            text = f"{file.name} was deleted while the agent had it open: its rows were written to the data file" + (
                "" if restarted else "; other processes see nothing newer until those that read now end"
            )
            self._report("store_log_deleted", text)
            return
        self._log = identity
        if status is not None and status.st_size > MAX_LOG_BYTES:
            text = (
                f"{file.name} has grown to {status.st_size // 2**20} MB and cannot be written back: a process keeps a "
                f"long read of this database open (`fuser {file.with_name('telemetry.db')}` names those that have it)"
            )
            self._report("store_log_grows", text)

    def _report(self, kind: str, text: str, subject_id: int | None = None, state: str | None = None) -> None:
        """Log an event, and store it with the next tick."""
        log.error("%s", text)
        with self._lock:
            self._events.append(Event(kind, text, subject_id, state))

    def check(self, stop: threading.Event, longest_pause_s: float = PAUSE_S) -> str | None:
        """Check everything stored in one pass, or until `stop`; faults become events, once each.

        Returns the reason to stop writing to the file where its pages are damaged, else None.
        """
        faults = 0
        step_s, began_s = PASS_S / steps(self._where), self._clock()
        for n, fault in enumerate(verify(self._where), 1):
            if fault is not None:
                faults += 1
                self._report_fault(fault, faults)
                if fault.damaged:
                    return f"{fault}"
            if n % STEPS_AT_ONCE == 0 and stop.wait(
                max(0.0, min(longest_pause_s, began_s + n * step_s - self._clock()))
            ):
                return None
        log.info("checked all that is stored: %s", f"{faults} faults" if faults else "all is as it was stored")
        return None

    def _report_fault(self, fault: StoredDifference, n: int) -> None:
        text = f"{fault}"
        if text in self._known:
            return
        self._known.add(text)
        log.error("not as it was stored: %s", text)
        if n <= MAX_REPORTED:
            with self._lock:
                self._events.append(Event("store_fault", text, fault.owner_id, state=text))

    def _with_room(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except FullStore as error:
            if not self._refused:  # else it was logged when ticks began to be refused
                log.error("%s", error)
            gone = free_space(self._writer, self._ballast)
            with self._lock:
                self._events.append(Event("store_full", f"no room left: {gone} were deleted"))
            self._tell_unshipped()
            return work()

    def _tell_unshipped(self) -> None:
        if minutes := self._writer.unshipped():
            text = f"ticks were deleted before they were shipped: {minutes} minutes, each of one device or deployment"
            log.warning("%s", text)
            with self._lock:
                self._events.append(Event("ship_gave_up", text))


def ages(settings: Settings) -> Ages:
    """Return how long telemetry is kept."""
    return Ages(
        int(settings.store_raw), int(settings.store_minutes), int(settings.store_hours), int(settings.store_events)
    )
