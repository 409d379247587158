"""Work that takes seconds: one call at a time in a thread, so that no key waits for it."""

from collections.abc import Callable
from threading import Lock, Thread

Report = Callable[[str, float], None]
Call = Callable[[Report], Callable[[], None]]
"""Computes, and returns what hands the result over."""


class Background:
    """Makes one call at a time. Of calls that come meanwhile only the newest is made: it replaces those that wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._waiting: Call | None = None
        self._busy = False
        self.phase: str | None = None
        """What is being done now; None while there is nothing to do."""
        self.share = 0.0
        """How much of it is done, of 1; 0 where that is not known."""

    def ask(self, call: Call) -> None:
        """Make a call soon. It is given a function to report its progress to, and raises nothing."""
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
                deliver()  # whoever is given the result sees whether more is being done
            if last:
                return

    def _report(self, phase: str, share: float) -> None:
        self.phase, self.share = phase, share
