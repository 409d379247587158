"""The inference servers of this host: which there are, and one reader for each that is kept between ticks."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import psutil

from pertoken.agent.discovery import discover
from pertoken.agent.engines.reader import EngineReader, detect
from pertoken.agent.readings import Endpoint, EngineReading, Gap
from pertoken.agent.scrape import Limits

MOST_AT_ONCE = 8
"""Engines read at the same time."""


class Watch:
    """Endpoints found by discovery and by setting. `look` is slow and runs apart; `read` is for every tick."""

    def __init__(self, urls: Iterable[str], find: bool, limits: Limits) -> None:
        self._urls, self._find, self._limits = tuple(urls), find, limits
        self._endpoints: tuple[Endpoint, ...] = ()
        self._readers: dict[str, EngineReader] = {}
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="engine")
        self.gaps: tuple[Gap, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers there were at the last look."""
        return self._endpoints

    def look(self) -> tuple[Endpoint, ...]:
        """Find the servers there are now. One that does not answer but whose process lives is kept."""
        found: dict[str, Endpoint] = {}
        gaps: tuple[Gap, ...] = ()
        if self._find:
            endpoints, gaps = discover(self._limits)
            found = {endpoint.base_url: endpoint for endpoint in endpoints}
        for url in self._urls:
            if url not in found:
                found[url] = detect(url, self._limits)
        for endpoint in self._endpoints:
            if endpoint.base_url not in found and _lives(endpoint):
                found[endpoint.base_url] = endpoint
        self.gaps = gaps
        self._endpoints = tuple(found.values())
        return self._endpoints

    def read(self) -> tuple[EngineReading, ...]:
        """Read every server found, at once; never raises for one of them."""
        endpoints = self._endpoints
        readers = {}
        for endpoint in endpoints:
            reader = self._readers.get(endpoint.base_url)
            readers[endpoint.base_url] = (
                reader if reader and reader.endpoint == endpoint else EngineReader(endpoint, self._limits)
            )
        self._readers = readers
        if len(readers) == 1:
            return tuple(reader.read() for reader in readers.values())
        return tuple(self._pool.map(EngineReader.read, readers.values()))

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


def _lives(endpoint: Endpoint) -> bool:
    if endpoint.pid is None or endpoint.process_start_ms is None:
        return False
    try:
        started = psutil.Process(endpoint.pid).create_time()
    except psutil.Error:
        return False
    return abs(started * 1000 - endpoint.process_start_ms) < 1000
