"""The agent as a running program: the lock, the schedule, signals, and an orderly end."""

import gc
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from pertoken.agent.assemble import Cost, Readings, assemble
from pertoken.agent.device_rows import host_id_of
from pertoken.agent.drivers import Drivers
from pertoken.agent.engine_rows import engine_id_of
from pertoken.agent.identity import Identity
from pertoken.agent.memory import Memory, Moment
from pertoken.agent.notify import notify
from pertoken.agent.probes.proc import own_rss_bytes
from pertoken.agent.processes import boot_ms
from pertoken.agent.readings import Endpoint, ProbeReading
from pertoken.agent.scrape import Limits
from pertoken.agent.ticks import lists_processes, tick_time
from pertoken.agent.upkeep import Upkeep
from pertoken.agent.watch import Watch, cpu_time_ms
from pertoken.config import Settings
from pertoken.errors import BadInput, CorruptStore, PertokenError, StoreError
from pertoken.parent import when_parent_ends
from pertoken.store.aside import set_aside
from pertoken.store.create import create
from pertoken.store.open import REVISIONS, explained, revision, writing
from pertoken.store.place import AgentLock, Place, place
from pertoken.store.rollup import MINUTE
from pertoken.store.rows import CounterState, Event
from pertoken.store.write import Writer

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

log = logging.getLogger("pertoken.agent")

LOOK_S = 30
"""Time between two looks for inference servers."""
CHECK_AFTER_S = 5
"""From the start to the first check of what is stored."""
ROLL_UP_S = 30
"""Roll-ups are made by the first tick of each stretch of this length; hours by the first of each minute."""

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
    where = place(first.db, first.advice)
    if where.folder is None:
        raise BadInput("the agent writes to a folder of this host; a server is filled by shipping")
    lock = AgentLock(where.folder)
    lock.acquire()
    try:
        told: tuple[Event, ...] = ()
        while True:
            started = time.monotonic()
            try:
                _migrate(where)
                Agent(where, settings, first, drivers, told).run(with_parent)
                return
            except CorruptStore as error:
                if told and time.monotonic() - started < NEW_S:
                    raise  # a disk on which a new one is damaged at once is not made better by more of them
                aside = set_aside(where, int(time.time()))
                told = (Event("store_damaged", f"damaged and set aside as {aside.name}: {error}"),)
                log.error("%s; set aside as %s, recording goes on in a new one", error, aside)
    finally:
        lock.release()


def _migrate(where: Place) -> None:
    """Make the telemetry, or bring it to our schema in a short-lived process: Alembic never stays in this one."""
    if not where.exists("telemetry"):
        create(where)
        return
    with explained(where):
        if revision(writing(where, "telemetry"), "telemetry") == REVISIONS["telemetry"][-1]:
            return
    done = subprocess.run(
        [sys.executable, "-m", "pertoken.migrations", "telemetry", str(where.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StoreError(done.stderr.strip() or f"{where}: its schema could not be upgraded")


class Agent:
    """One agent on one folder. Ticks, roll-ups and the connection belong to the scheduler's thread."""

    def __init__(
        self,
        where: Place,
        settings: Callable[[], Settings],
        first: Settings,
        drivers: Drivers,
        told: tuple[Event, ...] = (),
    ) -> None:
        self._where, self._reread, self._settings = where, settings, first
        self._stop = threading.Event()
        self._drivers = drivers
        self._writer = Writer(where, None if first.store_max_mb is None else int(first.store_max_mb * 1e6))
        self._identity = Identity(first.agent_cloud_metadata)
        self._upkeep = Upkeep(where, self._writer, first, told)
        self._damage: CorruptStore | None = None
        self._asked_to_end = False
        self._watch = self._new_watch(first)
        self._memory = Memory(watching_since_ms=_wall_ms(), boot_ms=boot_ms())
        self._last_ts: int | None = None
        self._listed_ts: int | None = None
        self._seen: tuple[Endpoint, ...] = ()
        self._cpu_ms = self._own_cpu_ms()
        self._tick_ms = 0
        self._rolled_ts = 0
        self._faults: dict[str, int] = {}

    @cached_property
    def _scheduler(self) -> "BackgroundScheduler":
        # Imported once the first tick is stored. Ticks run in the scheduler's own thread: handing each to another one
        # costs more than reading eight GPUs does.
        from apscheduler.executors.debug import DebugExecutor
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        return BackgroundScheduler(
            executors={"store": DebugExecutor(), "look": ThreadPoolExecutor(1), "check": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )

    def run(self, with_parent: bool) -> None:
        """Lay the baseline, tick until told to stop, and leave a folder that others can read."""
        again, release = threading.Event(), threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ask_to_end())
        signal.signal(signal.SIGHUP, lambda *_: again.set())
        signal.signal(signal.SIGUSR1, lambda *_: release.set())
        if with_parent:
            when_parent_ends(self._ask_to_end)
        try:
            self._watch.look()
            self._identity.look()
            self._begin()
            _tell("READY=1", f"STATUS=recording in {self._where}")
            self._tick_at_once()
            self._schedule()
            self._scheduler.start()
            gc.collect()
            gc.freeze()  # the collector need not walk all that was loaded, again and again
            log.info("recording in %s every %d s", self._where, self._settings.agent_interval)
            while not self._stop.wait(1.0):
                if release.is_set():
                    release.clear()
                    self._scheduler.add_job(self._release, executor="store")
                if again.is_set():
                    again.clear()
                    self._apply(self._reread)
        finally:
            _tell("STOPPING=1")
            if self._scheduler.running:
                self._scheduler.shutdown(wait=True)
            self._watch.close()
            self._drivers.close()
            self._end()
        if self._damage is not None and not self._asked_to_end:
            raise self._damage

    def _ask_to_end(self) -> None:
        self._asked_to_end = True
        self._stop.set()

    def _end(self) -> None:
        if self._damage is not None:
            self._writer.abandon()
            return
        try:
            self._upkeep.roll_up(hours=True)
            self._writer.close()
            log.info("stopped, with the last tick stored")
        except CorruptStore as error:
            self._writer.abandon()
            self._damage = error

    def _new_watch(self, settings: Settings) -> Watch:
        limits = Limits.of(settings)
        return Watch(settings.agent_engines, settings.agent_discover, limits)

    def _schedule(self) -> None:
        interval = self._settings.agent_interval
        start = datetime.fromtimestamp((time.time() // interval + 1) * interval, UTC)
        add = self._scheduler.add_job
        add(
            self._tick,
            "interval",
            seconds=interval,
            start_date=start,
            id="tick",
            executor="store",
            replace_existing=True,
        )
        later = datetime.now(UTC) + timedelta(seconds=LOOK_S)
        add(self._look, "interval", seconds=LOOK_S, start_date=later, id="look", executor="look", replace_existing=True)
        if self._scheduler.get_job("check") is None:
            pause, soon = self._settings.store_check_every, datetime.now(UTC) + timedelta(seconds=CHECK_AFTER_S)
            add(self._check, "interval", seconds=pause, start_date=soon, id="check", executor="check")

    def _apply(self, reread: Callable[[], Settings]) -> None:
        """Take new settings; wrong ones are told and the old ones stay."""
        try:
            settings = reread()
        except PertokenError as error:
            log.error("settings not taken: %s", error)
            return
        watch, self._watch = self._watch, self._new_watch(settings)
        if settings.agent_cloud_metadata != self._settings.agent_cloud_metadata:
            self._identity = Identity(settings.agent_cloud_metadata)
        self._settings = self._upkeep.settings = settings
        self._watch.look()
        self._identity.look()
        self._drivers.resume()
        watch.close()
        self._schedule()
        log.info("settings reread: recording every %d s", settings.agent_interval)

    def _begin(self) -> None:
        """The baseline: what is there, and counters never seen before."""
        probe, events = self._probe(processes=True)
        host_id = host_id_of(probe)
        self._last_ts = self._writer.before.last_ts(host_id)
        now_ms = _wall_ms()
        states: dict[int, dict[str, CounterState]] = {}
        shift_ms = self._boot_shift_ms(probe, host_id)
        for state in self._writer.before.counters():
            start_ms = state.process_start_ms
            if start_ms is not None and start_ms > 0:  # by our clock, not by a page's own
                start_ms += shift_ms
            states.setdefault(state.owner_id, {})[state.series] = replace(state, process_start_ms=start_ms)
        away_ms = 0
        if self._last_ts is not None:
            away_ms = max(0, min(now_ms - self._last_ts * 1000, now_ms - probe.host.boot_ms))
        self._memory = Memory(
            watching_since_ms=self._last_ts * 1000 if self._last_ts is not None else now_ms,
            boot_ms=boot_ms(),
            begun={key: start_ms + shift_ms for key, start_ms in self._writer.before.begun(host_id).items()},
            away_ms=away_ms,
            counters=states,
            known_owners=self._writer.before.known_owners(host_id),
            epochs={epoch.deployment_id: epoch for epoch in self._writer.before.open_epochs(host_id)},
            capabilities={(each.owner_id, each.metric): each for each in self._writer.before.capabilities()},
        )
        readings = self._readings(probe, events)
        moment = self._moment(max(now_ms // 1000, (self._last_ts or 0)))
        tick, memory = assemble(self._memory, readings, moment, cost=None)
        self._writer.commit(tick)
        self._memory, self._listed_ts = memory, moment.ts

    def _boot_shift_ms(self, probe: ProbeReading, host_id: int) -> int:
        """What to add to stored starts of processes: on the same boot they differ only by how it was told."""
        boot_id, before_ms = self._writer.before.boot(host_id)
        same = boot_id is not None and boot_id == probe.host.boot_id
        return boot_ms() - before_ms if same and before_ms is not None else 0

    def _tick_at_once(self) -> None:
        """A first tick that need not wait for its second, unless that has a row already."""
        if not tick_time(time.time(), self._settings.agent_interval, self._last_ts).clock_behind:
            self._tick()

    def _tick(self) -> None:
        """One tick: read, assemble, store, roll up. A fault is told once and counted; nothing counted is lost."""
        started = time.monotonic()
        try:
            when = tick_time(time.time(), self._settings.agent_interval, self._last_ts)
            listing = (
                lists_processes(when.ts, self._listed_ts, self._settings.agent_interval) or self._engines_changed()
            )
            probe, events = self._probe(processes=listing)
            if listing:
                self._listed_ts = when.ts
            if when.clock_behind:
                events += (Event("clock_behind", "the clock was stepped back; rows go on from the last one"),)
            readings = self._readings(probe, events)
            cpu_ms = self._own_cpu_ms()
            cost = Cost(cpu_ms - self._cpu_ms, own_rss_bytes(), self._tick_ms, when.missed)
            tick, memory = assemble(self._memory, readings, self._moment(when.ts), cost)
            self._upkeep.commit(tick)
            self._memory, self._last_ts, self._cpu_ms = memory, when.ts, cpu_ms
            if when.ts // ROLL_UP_S != self._rolled_ts // ROLL_UP_S:
                self._upkeep.roll_up(hours=when.ts // MINUTE != self._rolled_ts // MINUTE)
                self._rolled_ts = when.ts
            self._upkeep.after(when.ts)
            self._well("tick")
        except CorruptStore as error:
            self._damaged(error)
        except PertokenError as error:
            self._fault("tick", str(error))
        except Exception:
            log.exception("a tick failed")
        finally:
            _tell("WATCHDOG=1")
            self._tick_ms = round((time.monotonic() - started) * 1000)

    def _check(self) -> None:
        try:
            damage = self._upkeep.check(self._stop)
            if damage is not None:
                self._damaged(CorruptStore(f"{self._where}: {damage}"))
        except Exception:
            log.exception("checking what is stored failed")

    def _damaged(self, error: CorruptStore) -> None:
        """End; `run` sets the database aside and begins a new one."""
        self._damage = self._damage or error
        self._stop.set()

    def _release(self) -> None:
        self._drivers.release()
        log.info("the drivers are let go for 10 minutes, or until SIGHUP")

    def _look(self) -> None:
        try:
            self._watch.look()
            self._identity.look()
        except Exception:
            log.exception("looking for inference servers failed")

    def _probe(self, *, processes: bool) -> tuple[ProbeReading, tuple[Event, ...]]:
        if self._drivers.probes != self._settings.agent_probes:
            self._drivers.close()
            self._drivers = Drivers(self._settings.agent_probes)
        reading, events = self._drivers.read(processes, deadline_s=max(0.8 * self._settings.agent_interval, 5.0))
        for event in events:
            log.warning("%s", event.message)
        return reading, events

    def _engines_changed(self) -> bool:
        seen = self._watch.endpoints
        changed, self._seen = seen != self._seen, seen
        return changed

    def _readings(self, probe: ProbeReading, events: tuple[Event, ...]) -> Readings:
        engines = self._watch.read()
        host_id = host_id_of(probe)
        # Only several engines on the CPUs have to be told apart by their CPU time.
        times = (
            {engine_id_of(host_id, each): cpu_time_ms(each.endpoint) for each in engines} if len(engines) > 1 else {}
        )
        known = {key: ms for key, ms in times.items() if ms is not None}
        gaps = (*self._watch.gaps, *self._identity.gaps)
        return Readings(probe, engines, known, gaps, events, self._identity.known)

    def _moment(self, ts: int) -> Moment:
        return Moment(ts, _wall_ms(), round(time.monotonic() * 1000), self._settings.agent_interval)

    def _own_cpu_ms(self) -> int:
        return int(time.process_time() * 1000)

    def _fault(self, what: str, message: str) -> None:
        n = self._faults.get(what, 0) + 1
        self._faults[what] = n
        if n == 1:
            log.error("%s: %s", what, message)

    def _well(self, what: str) -> None:
        n = self._faults.pop(what, 0)
        if n:
            log.info("%s: works again after %d faults", what, n)


def _tell(*states: str) -> None:
    try:
        notify(*states)
    except OSError as error:
        log.warning("the service manager does not listen: %s", error)


def _wall_ms() -> int:
    return round(time.time() * 1000)
