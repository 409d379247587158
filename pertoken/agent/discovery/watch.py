"""The inference servers of this host: looked for in the background, and each read in a thread beside the tick.

A server may hang at any time, and costs nobody else anything: a tick takes the readings that are there after a short
wait. One that comes later is taken by the next tick, with the time at which it was there.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

import psutil

from pertoken.agent.discovery.questions import Questions
from pertoken.agent.discovery.servers import discover
from pertoken.agent.engines.reader import REMEDIES, EngineReader, answers, detect
from pertoken.agent.host.processes import HostProcesses, host_processes, since_boot_ms, start_ms
from pertoken.agent.readings import Endpoint, EngineReading, Unavailable
from pertoken.agent.scrape.http import Limits, ScrapeError
from pertoken.agent.workers import Workers

log = logging.getLogger("pertoken.agent")

MAX_READERS = 64
"""Engines read at the same time: as many may hang before another one has to wait."""
MAX_QUESTIONS = 16
"""Ports and URLs asked at the same time what they are."""
LIST_WAIT_S = 5.0
"""Longest wait for the processes of this host, which no server can hold up."""
LOOK_WAIT_S = 10.0
"""Longest wait of a look for the ports and URLs it asks. Answers that come later count in the next look."""
READ_WAIT_S = 0.25
"""Default wait of a tick for the readings it began, which take a few milliseconds."""
ASK_AGAIN_S = 120.0
"""Time for which a port that let us wait and then was no engine is not asked again."""


class Watch:
    """Endpoints found by discovery and by setting; `start_look` finds them, `read` is for every tick."""

    def __init__(
        self,
        urls: Iterable[str],
        find: bool,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        known: Iterable[Endpoint] = (),
    ) -> None:
        """`known`: endpoints found under other settings; those that the new ones may find too are read on meanwhile."""
        self._urls, self._find, self._limits, self._clock = tuple(urls), find, limits, clock
        self._silent: dict[str, float] = {}
        """Ports that let us wait -> when to ask them again."""
        self._endpoints = tuple(_under(self._urls, find, known))
        self._engines: dict[str, _Engine] = {}
        """By base URL."""
        self._awaited: set[_Engine] = set()
        self._ticks = 0
        self._done: SimpleQueue[_Engine] = SimpleQueue()
        self._readers = Workers(MAX_READERS, "engine")
        self._questions: Questions[Endpoint | str | ScrapeError] = Questions(MAX_QUESTIONS)
        self._lookers = Workers(1, "look")
        self._looking = threading.Lock()
        self._listed, self._looked = threading.Event(), threading.Event()
        self.unavailable: tuple[Unavailable, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers there were at the last look."""
        return self._endpoints

    def start_look(self) -> None:
        """Look for servers in the background, unless a look is under way."""
        if self._looking.acquire(blocking=False):
            self._looking.release()
            self._listed.clear()
            self._looked.clear()
            self._lookers.submit(self._look_and_note)

    def wait(self, seconds: float) -> None:
        """Wait for the look that was started: until it knows the host's processes, then `seconds` for those it asks."""
        self._listed.wait(LIST_WAIT_S)
        self._looked.wait(seconds)

    def _look_and_note(self) -> None:
        try:
            self.look()
        finally:
            self._listed.set()
            self._looked.set()

    def look(self) -> tuple[Endpoint, ...]:
        """Find the servers there are now. One that does not answer but whose process lives is kept.

        Servers that need not be asked what they are count at once, others within `LOOK_WAIT_S`.
        """
        with self._looking:
            processes = _once(host_processes)
            endpoints, unavailable = self._servers(processes, final=False)
            if self._questions.wait(0):
                self._endpoints = endpoints
                self._listed.set()
                self._questions.wait(LOOK_WAIT_S)
                endpoints, unavailable = self._servers(processes, final=True)
                self._questions.forget()
            self._endpoints, self.unavailable = endpoints, unavailable
            return endpoints

    def _servers(
        self, processes: Callable[[], HostProcesses], *, final: bool
    ) -> tuple[tuple[Endpoint, ...], tuple[Unavailable, ...]]:
        """Return the servers known by now and what is missing; not `final`: more answers are waited for."""
        endpoints: dict[str, Endpoint] = {}
        unavailable: list[Unavailable] = []

        def add(endpoint: Endpoint) -> None:
            # The same server may be found under several names of this host: it is read once.
            if not any(_same_server(endpoint, other) for other in endpoints.values()):
                endpoints.setdefault(endpoint.base_url, endpoint)

        if self._find:
            seen = discover(processes(), self._kind, self._endpoints)
            endpoints = {endpoint.base_url: endpoint for endpoint in seen.endpoints}
            unavailable += seen.unavailable
        known = {endpoint.base_url: endpoint for endpoint in self._endpoints}
        for url in self._urls:
            if url in endpoints:
                continue
            if url in known and self._reads_well(url) and _goes_on(known[url]):
                add(known[url])
                continue
            answer = self._questions.answer(f"setting {url}", lambda url=url: self._detect(url, processes))  # type: ignore[misc]
            if isinstance(answer, Endpoint):
                add(answer)
            elif isinstance(answer, ScrapeError):
                unavailable.append(Unavailable(f"engine {url}", "failing", answer.message, REMEDIES.get(answer.kind)))
            elif final:
                unavailable.append(
                    Unavailable(f"engine {url}", "failing", f"{url}: still asked what it is", REMEDIES["timeout"])
                )
        for endpoint in self._endpoints:
            if endpoint.base_url in self._urls if endpoint.pid is None else _goes_on(endpoint):
                add(endpoint)
        return tuple(endpoints.values()), tuple(unavailable)

    def _detect(self, url: str, processes: Callable[[], HostProcesses]) -> Endpoint | ScrapeError:
        try:
            return detect(url, self._limits, processes)
        except ScrapeError as error:
            return error

    def _kind(self, url: str) -> str | None:
        """Return the kind of engine that answers at a port that is only guessed; None while it was not heard of."""
        if self._clock() < self._silent.get(url, 0.0):
            return None
        answer = self._questions.answer(url, lambda: self._ask(url))
        return answer if isinstance(answer, str) and answer else None

    def _ask(self, url: str) -> str:
        started = time.monotonic()
        kind = answers(url, self._limits)
        if kind is None and time.monotonic() - started >= self._limits.timeout_s:
            self._silent[url] = self._clock() + ASK_AGAIN_S
        return kind or ""

    def _reads_well(self, url: str) -> bool:
        engine = self._engines.get(url)
        return engine is not None and engine.reads_well

    def start_read(self, *, latencies: bool = True, patience_s: float = READ_WAIT_S) -> None:
        """Begin to read every server that is not being read. Without `latencies` histograms are left for another time.

        `take` then waits for those that took less than `patience_s` the last time.
        """
        self._ticks += 1
        engines: dict[str, _Engine] = {}
        self._awaited = set()
        for endpoint in self._endpoints:
            url = endpoint.base_url
            engine = engines[url] = self._engines.get(url) or _Engine(EngineReader(endpoint, self._limits), endpoint)
            if engine.under_way:
                continue
            if engine.endpoint is not endpoint:  # by a later look; until then a reader follows its server alone
                engine.endpoint = endpoint
                if _process(engine.reader.endpoint) != _process(endpoint):
                    engine.reader = EngineReader(endpoint, self._limits)
            engine.under_way = True
            if engine.took_s < patience_s:
                self._awaited.add(engine)
            self._readers.submit(engine.call(self._ticks, latencies, self._done))
        self._engines = engines

    def wait_read(self, seconds: float) -> None:
        """Wait for the readings that were begun, of servers that were quick the last time."""
        deadline = time.monotonic() + seconds
        while any(engine.under_way for engine in self._awaited):
            try:
                self._done.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break

    def take(self, *, wait_s: float = READ_WAIT_S) -> tuple[EngineReading, ...]:
        """Return the newest reading of every server; never raises for one of them. One of several models has several.

        One that was read before this tick has the time at which it was read. One of which nothing is there after
        `wait_s` has a reading with the fault `LATE`; the next call returns what came meanwhile.
        """
        self.wait_read(wait_s)
        while not self._done.empty():
            self._done.get()
        fresh_ms = since_boot_ms() - 1000 * (wait_s + READ_WAIT_S)
        engines = self._engines.values()
        return tuple(chain.from_iterable(engine.take(self._ticks, fresh_ms) for engine in engines))

    def read(self, *, latencies: bool = True, wait_s: float = READ_WAIT_S) -> tuple[EngineReading, ...]:
        """Begin to read and take what is there within `wait_s`."""
        self.start_read(latencies=latencies, patience_s=wait_s)
        return self.take(wait_s=wait_s)

    def close(self) -> None:
        """End the threads. None is waited for: a server that hangs would hold up whoever closes this."""
        for workers in (self._readers, self._questions, self._lookers):
            workers.close()


@dataclass(eq=False)
class _Engine:
    """A server that is read: at most one read is under way. Its thread owns `reader` meanwhile."""

    reader: EngineReader
    endpoint: Endpoint
    """What the last look found, which the reader began with or agrees with."""
    under_way: bool = False
    reads_well: bool = False
    """Whether all of it could be read the last time."""
    failed: bool = False
    took_s: float = 0.0
    result: tuple[int, int, tuple[EngineReading, ...]] | None = None
    """Not taken yet: the tick that began to read, the time since boot (ms) at which it was read, and the readings."""

    def call(self, tick: int, latencies: bool, done: "SimpleQueue[_Engine]") -> Callable[[], None]:
        """Return the call that reads it in another thread, and puts it into `done`."""

        def read() -> None:
            started = time.monotonic()
            try:
                readings = self.reader.read(latencies=latencies)
                self.failed = False
            except Exception as error:
                if not self.failed:
                    log.exception("%s could not be read", self.reader.endpoint.base_url)
                self.failed = True
                readings = self.reader.failed(error)
            ended = time.monotonic()
            self.reads_well = not any(reading.fault for reading in readings)
            self.took_s = ended - started
            self.result = tick, since_boot_ms(), readings
            self.under_way = False
            done.put(self)

        return read

    def take(self, tick: int, fresh_ms: float) -> tuple[EngineReading, ...]:
        """Return what was read since the last call, or that it is late.

        What an earlier tick began, or was there before `fresh_ms`, has the time at which it was read.
        """
        result, self.result = self.result, None
        if result is None:
            return self.reader.late()
        began, read_ms, readings = result
        if began == tick and read_ms >= fresh_ms:
            return readings
        return tuple(replace(reading, read_ms=read_ms) for reading in readings)


def cpu_time_ms(endpoint: Endpoint) -> int | None:
    """Return CPU time so far of a server's processes, milliseconds; None if one cannot be read."""
    total = 0.0
    try:
        for pid in endpoint.pids:
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    except psutil.Error:
        return None
    return round(total * 1000)


def _once(call: Callable[[], HostProcesses]) -> Callable[[], HostProcesses]:
    """Return `call` made once for all threads that need it, with what is mapped into a process looked up once."""
    lock = threading.Lock()

    @cache
    def made() -> HostProcesses:
        host = call()
        return replace(host, libraries=cache(host.libraries))

    def shared() -> HostProcesses:
        with lock:
            return made()

    return shared


def _under(urls: Iterable[str], find: bool, known: Iterable[Endpoint]) -> Iterable[Endpoint]:
    """Return those of the known endpoints that these settings may find."""
    for endpoint in known:
        if find and endpoint.found_by == "process":
            yield endpoint
        elif endpoint.base_url in urls:
            yield replace(endpoint, found_by="setting")


def _process(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.kind, endpoint.pid, endpoint.process_start_ms, endpoint.contested


def _same_server(one: Endpoint, other: Endpoint) -> bool:
    """Return whether both lead to one server of this host. A proxy may lead to several, by its ports and paths."""
    if one.pid is None or _process(one) != _process(other):
        return False
    same_way = (one.port, urlsplit(one.base_url).path) == (other.port, urlsplit(other.base_url).path)
    return same_way or (one.certain and other.certain)


def _goes_on(endpoint: Endpoint) -> bool:
    """Return whether its process lives, if it is one of this host that can be seen."""
    return endpoint.pid is None or start_ms(endpoint.pid) == endpoint.process_start_ms
