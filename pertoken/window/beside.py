"""Reading of one part of a window in a second thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self

from pertoken.window.progress import TICK_S, Progress


class Beside:
    """A reading in a thread, without Python's lock while the database works. The thread ends with the context."""

    def __init__(self, read: Callable[[Progress], Any]) -> None:
        """Start `read`. It is called with the function that it reports progress to."""
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
