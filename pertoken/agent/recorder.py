"""Recorder of the agent: reads this host at each tick, and stores the readings as rows."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from pertoken.agent.clocks import (
    Clocks,
    PurgeClock,
    RecordedClock,
    TickTime,
    process_list_s,
    reads_latencies,
    tick_time,
)
from pertoken.agent.discovery import EndpointWatch, cpu_time_ms
from pertoken.agent.gateways import READ_S, GatewayWatch
from pertoken.agent.host.identity import LastingIdentity
from pertoken.agent.host.owners import Owners
from pertoken.agent.host.plug import READ_S as PLUG_S
from pertoken.agent.host.plug import plug_watch
from pertoken.agent.host.proc import own_rss_bytes
from pertoken.agent.host.processes import boot_ms
from pertoken.agent.readings import Endpoint, EngineReading, ProbeReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.devices import host_id_of
from pertoken.agent.rows.epochs import engine_id_of
from pertoken.agent.rows.restored_state import restored
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.sampler.client import Drivers
from pertoken.agent.scrape import RequestLimits
from pertoken.agent.shipper.supervisor import RETRY_S, START_S, Shipping
from pertoken.agent.upkeep import Upkeep
from pertoken.agent.workers import Workers
from pertoken.config import Settings
from pertoken.errors import CorruptStore, PertokenError, StoreError, limit_reached
from pertoken.schedule.jobs import Job
from pertoken.store.connect.location import StoreLocation, shipping_server
from pertoken.store.schema.rows import EpochRow, Event, Tick
from pertoken.store.schema.telemetry import MINUTE, ROLL_UP_S
from pertoken.store.write.writer import Writer

log = logging.getLogger("pertoken.agent")
LOOK_S = 30.0
"""Seconds between two searches for inference servers."""
CHECK_AFTER_S = 5.0
"""Seconds from the start to the first check of the database."""
RETENTION_S = 60.0
"""Seconds between two steps of deleting old rows. One pass over all tables ends within an hour."""
AFTER_TICK_S = 0.05
"""Seconds from the time of a tick to the roll-ups, which wait for the tick: screens count their rows."""
SETTLE_S = 10.0
"""Seconds between two steps of deleting outbox marks that the central server has acknowledged."""
FIRST_LOOK_S = 0.75
"""Maximum seconds to wait for servers to be identified and read, at a start or after a change of settings."""


class Recorder:
    """Recorder of one host in one folder. All methods run in one thread, except `check`, which runs in another."""

    def __init__(
        self,
        where: StoreLocation,
        settings: Settings,
        drivers: Drivers,
        events: tuple[Event, ...] = (),
        clocks: Clocks = Clocks(),  # noqa: B008 - frozen
    ) -> None:
        """Store `events`, which occurred before this start, with the first tick.

        Raises StoreError if the folder cannot be written.
        """
        self.settings = settings
        self._clocks = clocks
        self._where, self._drivers = where, drivers
        self._writer = Writer(where, None if settings.store_max_mb is None else int(settings.store_max_mb * 1e6))
        self._identity = LastingIdentity(settings.agent_cloud_metadata)
        self._watch = _watch(settings)
        self._gateways = GatewayWatch(settings.gateways, RequestLimits.of(settings))
        self._plug = plug_watch(settings)
        self._owners = Owners(settings.agent_pod_labels, settings.agent_hpc_job_mapping_dir)
        self._lookers = Workers(1, "identity")
        self._identified = threading.Event()
        purge_clock = PurgeClock(lambda: clocks.wall_ms() / 1000, lambda: clocks.since_boot_ms() / 1000)
        self._upkeep = Upkeep(where, self._writer, settings, events, purge_ts=purge_clock.now_ts)
        self._shipping = self._new_shipping()
        since_boot_ms = clocks.since_boot_ms()
        self._tick_state = TickState(watching_since_ms=since_boot_ms, boot_ms=boot_ms())
        self._clock = RecordedClock(clocks.wall_ms() - since_boot_ms)
        self._clock_events: tuple[Event, ...] = ()
        """Steps of the clock that no tick has stored yet."""
        self._last_ts: int | None = None
        self._lists_processes = False
        """Whether the next tick lists the processes on the devices."""
        self._seen: tuple[Endpoint, ...] = ()
        self._cpu_ms = _own_cpu_ms()
        self._tick_ms = 0
        self._rolled_ts = 0
        self._faults = 0
        self.stored: Callable[[Tick, Iterable[EpochRow]], None] | None = None
        """Called with each tick that was stored, and all open epochs."""

    # -- the one thread --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Read devices and servers once, so that the first tick has counters to compare with. Raises StoreError.

        Servers that do not answer within `FIRST_LOOK_S` are read in the background. Whether their counters start from 0
        depends on when their process started, not on when they answered.
        """
        self._look_briefly()
        self._start_probe(processes=True)
        self._watch.start_read(patience_s=FIRST_LOOK_S)
        probe = self._take_probe()
        starts_ms = {
            endpoint.process_start_ms for endpoint in self._watch.endpoints if endpoint.process_start_ms is not None
        }
        wall_ms, since_boot_ms = self._clocks.wall_ms(), self._clocks.since_boot_ms()
        previous = restored(self._writer.restored, probe[0], starts_ms, wall_ms=wall_ms, since_boot_ms=since_boot_ms)
        self._tick_state, self._clock, self._last_ts = previous.tick_state, previous.clock, previous.last_ts
        self._follow_clock(wall_ms, since_boot_ms)
        moment = self._moment(max(self._clock.at(since_boot_ms) // 1000, self._last_ts or 0))
        readings = self._readings(*probe, wait_s=FIRST_LOOK_S)
        tick, tick_state = assemble(self._tick_state, readings, moment, cost=None)
        self._writer.commit(tick)
        self._tick_state = tick_state
        self._cpu_ms = _own_cpu_ms()  # the first tick starts here: it does not include the CPU time of loading
        if self._last_ts is None or self._tick_time() is not None:
            self.tick()  # at once, unless this second has a row already

    def now_s(self) -> float:
        """Return the recorded time (`agent.clocks`), Unix seconds."""
        return self._clock.at(self._clocks.since_boot_ms()) / 1000

    def tick(self) -> None:
        """Read, assemble and store one tick. A fault is logged once, then counted; counters lose nothing.

        Raises CorruptStore if the database is damaged.
        """
        started = time.monotonic()
        try:
            self._tick()
            if self._faults:
                log.info("tick: works again after %d faults", self._faults)
            self._faults = 0
        except CorruptStore:
            raise
        except Exception as error:
            fault = error if isinstance(error, PertokenError) else limit_reached(error)
            if fault is None:
                log.exception("a tick failed")
                return
            self._faults += 1
            if self._faults == 1:
                log.error("tick: %s", fault)
        finally:
            self._tick_ms = round((time.monotonic() - started) * 1000)

    def apply(self, settings: Settings) -> None:
        """Apply new settings, a changed password or certificate of the central server included."""
        previous_watch, self._watch = self._watch, _watch(settings, self._watch.endpoints)
        previous_watch.close()
        self._gateways.close()
        self._gateways = GatewayWatch(settings.gateways, RequestLimits.of(settings))
        self._plug.close()
        self._plug = plug_watch(settings)
        self._owners = Owners(settings.agent_pod_labels, settings.agent_hpc_job_mapping_dir)
        if settings.agent_cloud_metadata != self.settings.agent_cloud_metadata:
            self._identity = LastingIdentity(settings.agent_cloud_metadata)
        self.settings = self._upkeep.settings = settings
        self._look_briefly()
        self._drivers.resume()
        if self._shipping is not None:
            self._shipping.close()
        try:
            self._shipping = self._new_shipping()
        except PertokenError as error:
            self._shipping = None
            log.error("nothing is shipped: %s", error)

    def release(self) -> None:
        """Release the drivers for a while."""
        self._drivers.release()
        log.info("the drivers are released for 10 minutes, or until SIGHUP")

    def end(self, damaged: bool) -> None:
        """Close the database so that other programs can read it. A damaged one is not written again."""
        if self._shipping is not None:
            self._shipping.close()
        self._watch.close()
        self._gateways.close()
        self._plug.close()
        self._lookers.close()
        self._drivers.close()
        try:
            if not damaged:
                self._roll_up_last()
                self._writer.close()
                log.info("stopped, with the last tick stored")
        except CorruptStore as error:  # whoever records next finds it
            log.error("%s", error)
            damaged = True
        if damaged:
            self._writer.abandon()

    def _roll_up_last(self) -> None:
        try:
            self._upkeep.roll_up(hours=True)
        except CorruptStore:
            raise
        except StoreError as error:  # every tick is stored, and the marks stay: the next agent rolls up
            log.error("roll-up at the end: %s", error)

    def start_look(self) -> None:
        """Search for inference servers and identify the cloud instance, in the background: both may take seconds."""
        self._watch.start_look()
        self._identified.clear()
        self._lookers.submit(self._identify)

    def _identify(self) -> None:
        try:
            self._identity.look()
        finally:
            self._identified.set()

    def _look_briefly(self) -> None:
        """Start the search, and wait briefly for its first results."""
        until_s = time.monotonic() + FIRST_LOOK_S
        self.start_look()
        self._watch.wait(FIRST_LOOK_S)
        self._identified.wait(max(0.0, until_s - time.monotonic()))

    # -- periodic work ---------------------------------------------------------------------------------------------

    def jobs(self, stop: threading.Event) -> tuple[Job, ...]:
        """Return the periodic jobs beside the ticks, by the present settings. A long job ends when `stop` is set."""
        list_s = process_list_s(self.settings.agent_interval)
        check_s = self.settings.store_check_every
        return (
            Job("engine look", self.start_look, LOOK_S, LOOK_S),
            Job("process lists", self._list_processes, list_s, list_s),
            Job("roll-ups", self._roll_up, ROLL_UP_S, phase_s=AFTER_TICK_S),
            Job("retention", self._delete_old, RETENTION_S, RETENTION_S),
            Job("tidying", self._upkeep.tidy, MINUTE),
            Job("integrity check", lambda: self.check(stop), check_s, CHECK_AFTER_S, beside=True),
            # New settings replace the watch of gateways and that of the plug.
            *((Job("gateways", lambda: self._gateways.start_read(), READ_S),) if self.settings.gateways else ()),
            *((Job("power at the plug", lambda: self._plug.start_read(), PLUG_S),) if self.settings.agent_plug else ()),
            *(() if self._shipping is None else self._shipping_jobs(stop)),
        )

    def _shipping_jobs(self, stop: threading.Event) -> tuple[Job, ...]:
        every_s = self.settings.ship_every
        first_s = random.uniform(0.0, min(every_s, START_S))
        return (
            Job("shipping", lambda: self._ship(stop), every_s, first_s, beside=True, retry_s=RETRY_S),
            Job("shipped marks", self._settle_shipped, SETTLE_S),
        )

    def _list_processes(self) -> None:
        self._lists_processes = True

    def _roll_up(self) -> None:
        ts = self._last_ts
        if ts is not None and ts != self._rolled_ts:
            self._upkeep.roll_up(hours=ts // MINUTE != self._rolled_ts // MINUTE)
            self._rolled_ts = ts

    def _delete_old(self) -> None:
        if self._last_ts is not None:
            self._upkeep.delete_old(self._last_ts)

    def _ship(self, stop: threading.Event) -> None:
        shipping = self._shipping  # new settings may replace it meanwhile
        if shipping is not None:
            shipping.round(stop)

    def _settle_shipped(self) -> None:
        if self._shipping is not None:
            self._shipping.settle(self._writer)
            self._shipping.bound(self._writer, self.settings.ship_spool_marks)

    def check(self, stop: threading.Event) -> None:
        """Check the whole database, or until `stop` is set. Raises CorruptStore if it must not be written again."""
        damage = self._upkeep.check(stop)
        if damage is not None:
            raise CorruptStore(f"{self._where}: {damage}")

    # -- a tick ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        interval_s, shipping = self.settings.agent_interval, self._shipping
        self._follow_clock(self._clocks.wall_ms(), self._clocks.since_boot_ms())
        when = self._tick_time()
        if when is None:
            return
        previous_endpoints, self._seen = self._seen, self._watch.endpoints
        listing = self._lists_processes or previous_endpoints != self._seen
        # All is read at the same time. Waiting for engines first leaves the interpreter to the threads that read them.
        patience_s = min(1.0, interval_s / 4)
        self._start_probe(processes=listing)
        self._watch.start_read(latencies=reads_latencies(when.ts, self._last_ts), patience_s=patience_s)
        self._watch.wait_read(patience_s)
        probe, events = self._take_probe()
        if listing:
            self._lists_processes = False
        events += self._clock_events
        if shipping is not None:
            events += shipping.events()
        readings = self._readings(probe, events, wait_s=0.0)
        cpu_ms = _own_cpu_ms()
        cost = AgentCost(cpu_ms - self._cpu_ms, own_rss_bytes(), self._tick_ms, when.missed)
        tick, tick_state = assemble(self._tick_state, readings, self._moment(when.ts), cost)
        self._upkeep.commit(tick)
        if self.stored is not None:
            self.stored(tick, tick_state.epochs.values())
        self._tick_state, self._last_ts, self._cpu_ms, self._clock_events = tick_state, when.ts, cpu_ms, ()

    def _start_probe(self, *, processes: bool) -> None:
        if self._drivers.probes != self.settings.agent_probes:
            self._drivers.close()
            self._drivers = Drivers(self.settings.agent_probes)
        self._drivers.start_read(processes)

    def _take_probe(self) -> tuple[ProbeReading, tuple[Event, ...]]:
        reading, events = self._drivers.take(deadline_s=max(0.8 * self.settings.agent_interval, 5.0))
        for event in events:
            log.warning("%s", event.message)
        return reading, events

    def _readings(self, probe: ProbeReading, events: tuple[Event, ...], *, wait_s: float) -> Readings:
        engines = self._watch.take(wait_s=wait_s)
        host_id = host_id_of(probe)
        cpu_time_by_engine = {
            engine_id_of(host_id, engine.endpoint, self._tick_state.engine_urls): ms
            for engine in engines
            if len(engines) > 1  # only several engines on the CPUs have to be separated by their CPU time
            if (ms := cpu_time_ms(engine.endpoint)) is not None
        }
        self._owners.look()
        engines = tuple(self._with_owner(engine) for engine in engines)
        unavailable = (
            *self._watch.unavailable,
            *self._identity.unavailable,
            *self._gateways.unavailable,
            *self._plug.unavailable,
        )
        return Readings(
            probe,
            engines,
            cpu_time_by_engine,
            unavailable,
            events,
            self._identity.known,
            gateways=self._gateways.take(),
            jobs_by_gpu=self._owners.jobs,
            plug=self._plug.newest,
        )

    def _with_owner(self, engine: EngineReading) -> EngineReading:
        owner = self._owners.knobs_of(engine.endpoint.pid, engine.endpoint.process_start_ms)
        return replace(engine, knobs={**engine.knobs, **owner}) if owner else engine

    def _follow_clock(self, wall_ms: int, since_boot_ms: int) -> None:
        self._clock, text = self._clock.follow(wall_ms, since_boot_ms)
        if text is not None:
            log.warning("%s", text)
            self._clock_events += (Event("clock_step", text),)

    def _tick_time(self) -> TickTime | None:
        since_boot_ms, tick_state = self._clocks.since_boot_ms(), self._tick_state
        host_id = None if tick_state.probe is None else host_id_of(tick_state.probe)
        return tick_time(
            self._clock.at(since_boot_ms),
            self.settings.agent_interval,
            self._last_ts,
            tick_state.newest_ts,
            since_last_ms=since_boot_ms - tick_state.row_ends.get(host_id or 0, since_boot_ms),
            taken=lambda start, end: self._writer.restored.seconds_taken(host_id or 0, start, end),
        )

    def _moment(self, ts: int) -> Moment:
        wall_ms, since_boot_ms = self._clocks.wall_ms(), self._clocks.since_boot_ms()
        return Moment(ts, wall_ms, since_boot_ms, self.settings.agent_interval, self._clock.offset_ms)

    def _new_shipping(self) -> Shipping | None:
        """Return the shipper by the present settings; with a central server, mark rows to ship from now on."""
        server = shipping_server(self.settings)
        self._writer.ship(server is not None, raw=self.settings.ship_raw)
        if server is None or self._where.folder is None:
            return None
        log.info("shipping to %s every %g s", server, self.settings.ship_every)
        return Shipping(self._where.folder, server)


def _watch(settings: Settings, endpoints: Iterable[Endpoint] = ()) -> EndpointWatch:
    return EndpointWatch(
        settings.agent_engines, settings.agent_discover, RequestLimits.of(settings), endpoints=endpoints
    )


def _own_cpu_ms() -> int:
    return int(time.process_time() * 1000)
