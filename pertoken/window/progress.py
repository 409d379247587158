"""Progress of long readings."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[str, float], None]
"""Called with the name of a phase and the share of it that is done, 0 to 1; not at all for long, or many times."""
TICK_S = 0.2
"""Seconds between two calls of one loop: people see a bar move, and it costs nothing."""


def no_progress(phase: str, share: float) -> None:
    """Show nothing."""


def ticking(items: Iterable[T], n: int, phase: str, progress: Progress) -> Iterator[T]:
    """Yield the items, about `n` of them, and report progress every `TICK_S`."""
    progress(phase, 0.0)
    last = time.monotonic()
    for done, t in enumerate(items):
        yield t
        if (now := time.monotonic()) - last >= TICK_S:
            last = now
            progress(phase, min(1.0, (done + 1) / max(1, n)))
