"""The inference servers of this host: which there are, and one reader for each that is kept between ticks."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import chain

import psutil

from pertoken.agent.discovery import discover
from pertoken.agent.engines.reader import REMEDIES, EngineReader, answers, detect
from pertoken.agent.processes import host_processes, start_ms
from pertoken.agent.readings import Endpoint, EngineReading, Gap
from pertoken.agent.scrape import Limits, ScrapeError

MOST_AT_ONCE = 8
"""Engines read at the same time."""
ASK_AGAIN_S = 120.0
"""Time for which a port that let us wait and then was no engine is not asked again: others are looked for meanwhile."""


class Watch:
    """Endpoints found by discovery and by setting. `look` is slow and runs apart; `read` is for every tick."""

    def __init__(
        self, urls: Iterable[str], find: bool, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._urls, self._find, self._limits, self._clock = tuple(urls), find, limits, clock
        self._silent: dict[str, float] = {}
        """Ports that let us wait -> when to ask them again."""
        self._endpoints: tuple[Endpoint, ...] = ()
        self._readers: dict[str, EngineReader] = {}
        self._well: frozenset[str] = frozenset()
        """Base URLs of which all could be read the last time."""
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="engine")
        self.gaps: tuple[Gap, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers there were at the last look."""
        return self._endpoints

    def look(self) -> tuple[Endpoint, ...]:
        """Find the servers there are now. One that does not answer but whose process lives is kept."""
        found: dict[str, Endpoint] = {}
        gaps: list[Gap] = []
        processes = cache(host_processes)

        def add(endpoint: Endpoint) -> None:
            # The same server may be found under several names of this host: it is read once.
            if not any(endpoint.pid and _process(endpoint) == _process(each) for each in found.values()):
                found.setdefault(endpoint.base_url, endpoint)

        if self._find:
            seen = discover(processes(), self._ask, self._endpoints)
            found = {endpoint.base_url: endpoint for endpoint in seen.endpoints}
            gaps += seen.gaps
        known = {endpoint.base_url: endpoint for endpoint in self._endpoints}
        for url in self._urls:
            if url in found:
                continue
            if url in known and url in self._well and _goes_on(known[url]):
                add(known[url])
                continue
            try:
                add(detect(url, self._limits, processes))
            except ScrapeError as error:
                gaps.append(Gap(f"engine {url}", "failing", error.message, REMEDIES.get(error.kind)))
        for endpoint in self._endpoints:
            if endpoint.base_url in self._urls if endpoint.pid is None else _goes_on(endpoint):
                add(endpoint)
        self.gaps = tuple(gaps)
        self._endpoints = tuple(found.values())
        return self._endpoints

    def _ask(self, url: str) -> str | None:
        started = self._clock()
        if started < self._silent.get(url, started):
            return None
        kind = answers(url, self._limits)
        if kind is None and self._clock() - started >= self._limits.timeout_s:
            self._silent[url] = self._clock() + ASK_AGAIN_S
        return kind

    def read(self, *, latencies: bool = True) -> tuple[EngineReading, ...]:
        """Read every server found, at once; never raises for one of them. One of several models gives several.

        Without `latencies` their histograms are left for another time.
        """
        readers = {}
        for endpoint in self._endpoints:
            reader = self._readers.get(endpoint.base_url)
            same = reader is not None and _process(reader.endpoint) == _process(endpoint)
            readers[endpoint.base_url] = reader if reader and same else EngineReader(endpoint, self._limits)
        self._readers = readers
        # One alone is read here: handing it to another thread costs a tenth of reading it.
        read = partial(EngineReader.read, latencies=latencies)
        told = list((map if len(readers) == 1 else self._pool.map)(read, readers.values()))
        self._well = frozenset(
            url for url, each in zip(readers, told, strict=True) if not any(reading.fault for reading in each)
        )
        return tuple(chain.from_iterable(told))

    def close(self) -> None:
        """Let go of the reading threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def cpu_time_ms(endpoint: Endpoint) -> int | None:
    """CPU time so far of a server's processes, milliseconds; None if one cannot be read."""
    total = 0.0
    try:
        for pid in endpoint.pids:
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    except psutil.Error:
        return None
    return round(total * 1000)


def _process(endpoint: Endpoint) -> tuple[str, int | None, int | None]:
    return endpoint.kind, endpoint.pid, endpoint.process_start_ms


def _goes_on(endpoint: Endpoint) -> bool:
    """Whether its process lives, if it is one of this host that can be seen."""
    return endpoint.pid is None or start_ms(endpoint.pid) == endpoint.process_start_ms
