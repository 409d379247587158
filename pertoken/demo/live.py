"""Ticks of a demo's hosts, written as they come due while the screens are open."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from pertoken.demo.making import Demo, minutes_of
from pertoken.demo.rows.buckets import Steps
from pertoken.demo.rows.identities import INTERVAL_S, EngineRows, HostRows
from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer

MINUTE = 60


class Live:
    """Thread that writes ticks of a demo from its end on."""

    def __init__(self, location: StoreLocation, demo: Demo, now: Callable[[], float] = time.time) -> None:
        self._location, self._demo, self._now = location, demo, now
        self._until = demo.span.end_ts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)
        self._failed: str | None = None

    def start(self) -> None:
        """Write what is due since the demo ended, and start the thread that goes on: no host looks stale meanwhile."""
        self._written(self.step)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the tick that is being written."""
        self._stop.set()
        self._thread.join()

    def notice(self) -> str | None:
        """Return why the thread stopped writing; None while it writes."""
        return self._failed

    def _run(self) -> None:
        self._written(self._go_on)

    def _written(self, write: Callable[[Writer], None]) -> None:
        try:
            with Writer(self._location) as writer:
                write(writer)
        except StoreError as error:
            self._failed = f"The demo is no longer continued: {error}"

    def _go_on(self, writer: Writer) -> None:
        while not self._stop.is_set():
            self.step(writer)
            self._stop.wait(INTERVAL_S - self._now() % INTERVAL_S)

    def step(self, writer: Writer) -> None:
        """Write all ticks that are due."""
        until = int(self._now()) // INTERVAL_S * INTERVAL_S
        if until <= self._until:
            return
        for host in self._demo.hosts.values():
            writer.commit_all(list(self._due(host, until)))
        self._until = until
        writer.roll_up(hours=until % MINUTE == 0)

    def _due(self, host: HostRows, until: int) -> Iterator[Tick]:
        own: list[EngineRows] = [engine for engine in self._demo.engines if engine.host is host]
        first = self._until // MINUTE * MINUTE
        steps = Steps(np.arange(first, until, MINUTE), MINUTE)
        for tick in minutes_of(host, own, self._demo, steps).ticks(own, len(steps.ts)):
            if self._until < tick.ts <= until:
                yield tick
