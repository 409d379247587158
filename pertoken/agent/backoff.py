"""Growing pauses before something that failed is tried again."""

from collections.abc import Callable

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
