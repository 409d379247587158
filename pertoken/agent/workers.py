"""Threads for calls that may hang: nothing waits for them, the end of the program neither."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("pertoken.agent")


class Workers:
    """Daemon threads, started as they are needed, that run calls in the order in which they were submitted."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads, self._name = max_threads, name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        """Calls submitted and not done yet."""
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call` in a thread, at once if fewer than `max_threads` calls are running. Not after `close`."""
        with self._lock:
            if self._closed:
                return
            self._busy += 1
            if self._busy > self._threads < self._max_threads:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._calls.put(call)

    def close(self) -> None:
        """Start no further call; threads end after the call they are in."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                if not self._closed:
                    call()
            except Exception:
                log.exception("a call of %s failed", self._name)
            finally:
                with self._lock:
                    self._busy -= 1


Clock = Callable[[], float]
"""Monotonic seconds."""


class Backoff:
    """Due at once, then after 5 s, doubling up to 5 minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wait_s = 5.0
        self._due_s = float("-inf")

    @property
    def due(self) -> bool:
        """Whether it may be tried now."""
        return self._clock() >= self._due_s

    def failed(self) -> None:
        """It was tried and failed."""
        self._due_s = self._clock() + self._wait_s
        self._wait_s = min(self._wait_s * 2, 300.0)
