"""A part of a computation in a fork of this process, so that two processors share it."""

import mmap
import os
import pickle
import select
import signal
import struct
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from pertoken.advisor.worker.confine import end_with_parent

T = TypeVar("T")
_COUNT = struct.Struct("q")


def can_fork() -> bool:
    """Return whether a fork is safe and gains time: no other thread runs, and there is a second processor."""
    return threading.active_count() == 1 and len(os.sched_getaffinity(0)) > 1


class Forked(Generic[T]):
    """Work that runs in a fork of this process; leaving the context ends it.

    The work is our own code, of values that are in memory; it opens nothing, and returns what can be pickled.
    """

    def __init__(self, work: Callable[[Callable[[int], None]], T]) -> None:
        """Start `work`, which is given a function that takes how much of it is done."""
        self._work = work
        self._shared = mmap.mmap(-1, _COUNT.size)
        self._reader, writer = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that libraries may have: they do not work
            self._pid = os.fork()
        if self._pid == 0:
            self._run(parent, writer)
        os.close(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._reader)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # whoever started us may have children reaped at once
            os.waitpid(self._pid, 0)

    @property
    def done(self) -> int:
        """How much of the work is done, as it reports."""
        return int(_COUNT.unpack_from(self._shared)[0])

    def result(self, beat: Callable[[], None], beat_s: float) -> T:
        """Wait for what the work returns, and call `beat` every `beat_s` seconds meanwhile.

        Where the fork ended without a result the work is done here, and raises what it raises.
        """
        parts: list[bytes] = []
        while True:
            beat()
            if select.select([self._reader], [], [], beat_s)[0]:
                part = os.read(self._reader, 2**20)
                if not part:
                    break
                parts.append(part)
        data = b"".join(parts)
        if data[:1] != b"\1":
            return self._work(lambda count: None)
        result: T = pickle.loads(data[1:])
        return result

    def _run(self, parent: int, writer: int) -> NoReturn:
        try:
            end_with_parent(parent)
            os.close(self._reader)
            data: Any = memoryview(b"\1" + pickle.dumps(self._work(self._report)))
            while data:
                data = data[os.write(writer, data) :]
        finally:
            os._exit(0)

    def _report(self, count: int) -> None:
        _COUNT.pack_into(self._shared, 0, count)
