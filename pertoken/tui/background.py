"""Calls that take seconds, made one at a time in a thread so that no key waits for them."""

from collections.abc import Callable
from threading import Lock, Thread

Report = Callable[[str, float], None]
Call = Callable[[Report], Callable[[], None]]
"""Function that computes a result and returns a function that delivers it."""


class Background:
    """A worker that makes one call at a time. A new call replaces the one that waits, so only the newest waits."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._waiting: Call | None = None
        self._busy = False
        self.phase: str | None = None
        """Step of the call that runs now; None while no call runs."""
        self.share = 0.0
        """Completed share of the call, 0 to 1; 0 if it is not known."""

    def ask(self, call: Call) -> None:
        """Schedule a call, which receives a function for its progress reports and must not raise."""
        with self._lock:
            self._waiting = call
            if self._busy:
                return
            self._busy = True
            self.phase, self.share = "starting", 0.0
        Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                call, self._waiting = self._waiting, None
            if call is not None:
                deliver = call(self._report)
            with self._lock:
                last = self._waiting is None
                if last:
                    self._busy, self.phase = False, None
            if call is not None:
                deliver()  # after the state is updated: the receiver reads `phase`
            if last:
                return

    def _report(self, phase: str, share: float) -> None:
        self.phase, self.share = phase, share
