"""A part of a window that a thread reads while this one reads the others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self

from pertoken.window.progress import TICK_S, Progress


class Beside:
    """A reading in a thread: SQLite works without Python's lock, and a server anyway. It has ended with the context."""

    def __init__(self, read: Callable[[Progress], Any]) -> None:
        """Start `read`, which is given what to report progress to."""
        self._step = ("", 0.0)
        self._pool = ThreadPoolExecutor(1)
        self._reading = self._pool.submit(read, self._note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def result(self, progress: Progress) -> Any:
        """Wait for what was read, and report its progress meanwhile. Raises what reading raised."""
        while wait([self._reading], TICK_S).not_done:
            progress(*self._step)
        return self._reading.result()

    def _note(self, phase: str, share: float) -> None:
        self._step = phase, share
