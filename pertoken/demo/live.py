"""A demo that goes on: ticks of its hosts as they come due, written while the screens are open."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from pertoken.demo.making import Made, minutes_of
from pertoken.demo.rows.buckets import Steps
from pertoken.demo.rows.identities import INTERVAL_S, EngineRows, HostRows
from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer

MINUTE = 60


class Live:
    """Writes what the hosts of a demo do from its end on, in a thread of its own."""

    def __init__(self, place: StoreLocation, made: Made, now: Callable[[], float] = time.time) -> None:
        self._place, self._made, self._now = place, made, now
        self._until = made.span.end_ts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)
        self._failed: str | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End after the tick that is being written."""
        self._stop.set()
        self._thread.join()

    def notice(self) -> str | None:
        """Return why nothing is written any more; None while all is well."""
        return self._failed

    def _run(self) -> None:
        try:
            with Writer(self._place) as writer:
                while not self._stop.is_set():
                    self.step(writer)
                    self._stop.wait(INTERVAL_S - self._now() % INTERVAL_S)
        except StoreError as error:
            self._failed = f"The demo stands still: {error}"

    def step(self, writer: Writer) -> None:
        """Write all ticks that are due."""
        until = int(self._now()) // INTERVAL_S * INTERVAL_S
        if until <= self._until:
            return
        for host in self._made.hosts.values():
            writer.commit_all(list(self._due(host, until)))
        self._until = until
        writer.roll_up(hours=until % MINUTE == 0)

    def _due(self, host: HostRows, until: int) -> Iterator[Tick]:
        own: list[EngineRows] = [each for each in self._made.engines if each.host is host]
        first = self._until // MINUTE * MINUTE
        steps = Steps(np.arange(first, until, MINUTE), MINUTE)
        for tick in minutes_of(host, own, self._made, steps).ticks(own, len(steps.ts)):
            if self._until < tick.ts <= until:
                yield tick
