"""Work that is done before a key needs it, while nobody presses one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

Step = Callable[[], object]
PAUSE_S = 0.25
"""Seconds without a key before a step, and between two steps."""


class IdleWork:
    """Steps in a queue, each a small part of a second. `after` calls a function after some seconds."""

    def __init__(self, after: Callable[[float, Step], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._after, self._clock = after, clock
        self._steps: deque[Step] = deque()
        self._touched_s = -PAUSE_S

    def add(self, *steps: Step) -> None:
        """Queue steps."""
        idle = not self._steps
        self._steps.extend(steps)
        if idle and steps:
            self._after(PAUSE_S, self._next)

    def touched(self) -> None:
        """Wait again: a key was pressed."""
        self._touched_s = self._clock()

    def _next(self) -> None:
        left_s = self._touched_s + PAUSE_S - self._clock()
        if left_s > 0:
            self._after(left_s, self._next)
            return
        self._steps[0]()
        self._steps.popleft()
        if self._steps:
            self._after(PAUSE_S, self._next)
