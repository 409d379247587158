"""The agent as a running program: the lock, the schedule, signals, and an orderly end."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from pertoken.agent.clocks import next_tick
from pertoken.agent.recorder import Recorder
from pertoken.agent.sampler.client import Drivers
from pertoken.agent.systemd import notify
from pertoken.config import Settings
from pertoken.errors import CORRUPT_STATUS, BadInput, CorruptStore, PertokenError, StoreError
from pertoken.process import settle, when_parent_ends
from pertoken.schedule.jobs import Job, JobState, write_states
from pertoken.store.connect.location import AgentLock, StoreLocation, locate, shipping_server
from pertoken.store.connect.open import REVISIONS, create, explained, revision, writing
from pertoken.store.integrity.verify import check_header, check_revision_readable, has_schema, quarantine_database
from pertoken.store.schema.rows import Event

if TYPE_CHECKING:
    from pertoken.schedule.scheduler import Scheduler

log = logging.getLogger("pertoken.agent")

NOTED_S = 10.0
"""Least time between two notes of how jobs went, unless one began or ceased to fail."""
NEW_S = 60.0
"""A database that is damaged sooner after its making is not replaced again."""


def run(settings: Callable[[], Settings], drivers: Drivers, *, with_parent: bool = False) -> None:
    """Run the agent until SIGTERM or SIGINT (or, `with_parent`, until standard input ends).

    `settings` is called at the start and at SIGHUP; `drivers` may have been started. Raises StoreError if the folder
    is taken, cannot be written or is of a newer schema; BadInput for a database that is not a folder.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    first = settings()
    where = locate(first.db, first.advice)
    if where.folder is None:
        raise BadInput("the agent writes to a folder of this host; a server is filled by shipping")
    lock = AgentLock(where.folder)
    lock.acquire()
    try:
        events: tuple[Event, ...] = ()
        while True:
            started = time.monotonic()
            try:
                migrate(where)
                _Daemon(Recorder(where, first, drivers, events), where, settings).run(with_parent)
                return
            except CorruptStore as error:
                if events and time.monotonic() - started < NEW_S:
                    raise  # a disk on which a new one is damaged at once is not made better by more of them
                quarantined = quarantine_database(where, int(time.time()))
                text = f"damaged and quarantined as {quarantined.name}: {error}"
                events = (Event("store_damaged", text, state=quarantined.name),)
                log.error("%s; quarantined as %s, recording goes on in a new database", error, quarantined)
    finally:
        lock.release()


def migrate(where: StoreLocation) -> None:
    """Make the telemetry, or bring it to our schema in a short-lived process: Alembic never stays in this one.

    Raises StoreError, CorruptStore for a damaged one.
    """
    if not where.exists("telemetry"):
        create(where)
        return
    check_header(where)
    with explained(where):
        engine = writing(where, "telemetry")
        stored_revision = revision(engine, "telemetry")
        with engine.connect() as connection:
            check_revision_readable(where, connection, stored_revision)
    if stored_revision == REVISIONS["telemetry"][-1]:
        return
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pertoken.migrations", "telemetry", str(where.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        text = done.stderr.strip() or f"{where}: its schema could not be upgraded"
        with explained(where), engine.connect() as connection:
            # What names an older revision and has every table of the newest cannot be upgraded, nor was it made so.
            damaged = done.returncode == CORRUPT_STATUS or (
                stored_revision in REVISIONS["telemetry"] and has_schema(where, connection)
            )
        raise (CorruptStore if damaged else StoreError)(text.splitlines()[-1])


class _Daemon:
    """Ticks in the thread that runs it, and between them makes the calls of signals and of the scheduler."""

    def __init__(self, recorder: Recorder, where: StoreLocation, reread: Callable[[], Settings]) -> None:
        self._recorder, self._where, self._reread = recorder, where, reread
        self._asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """To be done between two ticks. Signals may put something here, whatever they interrupt."""
        self._asked_to_end = False
        self._pushes: tuple[Job, ...] = ()
        self._ending = threading.Event()
        self._noted: tuple[float, tuple[str | None, ...]] = 0.0, ()
        """When the states of jobs were noted last, and their errors."""

    @cached_property
    def _scheduler(self) -> "Scheduler":
        """Runs all periodic work but the ticks. Imported once the first tick is stored."""
        from pertoken.schedule.scheduler import Scheduler

        return Scheduler(self._asked.put, self._note, fatal=(CorruptStore,))

    def run(self, with_parent: bool) -> None:
        """Tick until asked to stop. Raises CorruptStore if the database is damaged before."""
        asked_by: dict[int, Callable[[], None]] = {
            signal.SIGTERM: self._end,
            signal.SIGINT: self._end,
            signal.SIGHUP: lambda: self._asked.put(self._apply),
            signal.SIGUSR1: lambda: self._asked.put(self._recorder.release),
        }
        for number, ask in asked_by.items():
            signal.signal(number, lambda *_, ask=ask: ask())
        if with_parent:
            when_parent_ends(self._end)
        damaged = False
        exports = ExitStack()
        try:
            self._export(exports)
            self._recorder.begin()
            _notify_systemd("READY=1", f"STATUS=recording in {self._where}")
            self._set_jobs()
            self._scheduler.start()
            settle()
            log.info("recording in %s every %d s", self._where, self._recorder.settings.agent_interval)
            self._tick_on()
        except CorruptStore:
            damaged = True
            if not self._asked_to_end:  # else it is found by whoever records next
                raise
        finally:
            _notify_systemd("STOPPING=1")
            self._ending.set()
            self._scheduler.stop()
            self._recorder.end(damaged)
            exports.close()  # last: what is stored waits for no collector

    def _export(self, held: ExitStack) -> None:
        """Expose metrics where an address is set; only then is the code for it loaded."""
        settings = self._recorder.settings
        if settings.agent_metrics_listen is None and settings.agent_otlp_endpoint is None:
            return
        from pertoken.agent.exporter import TickTotals, endpoint_of, pusher_of
        from pertoken.exposition import PUSH_EVERY_S

        totals = TickTotals()
        self._recorder.stored = totals.add
        endpoint, pusher = endpoint_of(settings, totals), pusher_of(settings, totals)
        if endpoint is not None:
            held.callback(endpoint.stop)
        if pusher is not None:
            self._pushes = (Job("metrics push", pusher.push, PUSH_EVERY_S, PUSH_EVERY_S, beside=True),)
            held.callback(pusher.end)

    def _set_jobs(self) -> None:
        self._scheduler.set((*self._recorder.jobs(self._ending), *self._pushes))

    def _tick_on(self) -> None:
        """Tick at each multiple of the interval by recorded time; one that is late at once, missed ones never."""
        recorder = self._recorder
        due_ts = next_tick(recorder.now_s(), recorder.settings.agent_interval)
        while not self._asked_to_end:
            left_s = due_ts - recorder.now_s()
            if 0 < left_s <= recorder.settings.agent_interval:
                with suppress(Empty):
                    self._asked.get(timeout=left_s)()
                continue
            if left_s <= 0:
                recorder.tick()
                self._scheduler.follow_clock()
                _notify_systemd("WATCHDOG=1")
            # Else recorded time was set back, or the interval was shortened.
            due_ts = next_tick(recorder.now_s(), recorder.settings.agent_interval)

    def _note(self, states: tuple[JobState, ...]) -> None:
        """Write down how jobs went, for `agent status` and `doctor`."""
        errors, now_s = tuple(state.error for state in states), time.monotonic()
        if now_s - self._noted[0] < NOTED_S and errors == self._noted[1]:
            return
        self._noted = now_s, errors
        if self._where.folder is not None:
            with suppress(OSError):  # a full disk is reported by what has to be stored
                write_states(self._where.folder, states)

    def _end(self) -> None:
        self._asked_to_end = True
        self._asked.put(lambda: None)  # so that it is seen now

    def _apply(self) -> None:
        """Take new settings; wrong ones are logged and the old ones stay."""
        try:
            settings = self._reread()
            shipping_server(settings)
        except PertokenError as error:
            log.error("settings not taken: %s", error)
            return
        self._recorder.apply(settings)
        self._set_jobs()
        log.info("settings reread: recording every %d s", settings.agent_interval)


def _notify_systemd(*states: str) -> None:
    try:
        notify(*states)
    except OSError as error:
        log.warning("the service manager does not listen: %s", error)
