"""Half of a computation in a forked process, to use a second processor."""

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
    """Return whether a fork is safe and saves time: no other thread runs, and there is a second processor."""
    return threading.active_count() == 1 and len(os.sched_getaffinity(0)) > 1


class Forked(Generic[T]):
    """Work in a forked process; leaving the context ends the process.

    The work is code of this program on values in memory. It opens no files and returns a picklable value.
    """

    def __init__(self, work: Callable[[Callable[[int], None]], T]) -> None:
        """Start `work`; its argument is a function that reports the number of finished items."""
        self._work = work
        self._shared = mmap.mmap(-1, _COUNT.size)
        self._reader, writer = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries are idle
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
        with suppress(ChildProcessError):  # the parent may ignore SIGCHLD, which reaps children at once
            os.waitpid(self._pid, 0)

    @property
    def done(self) -> int:
        """Number of finished items, as the work reports."""
        return int(_COUNT.unpack_from(self._shared)[0])

    def result(self, beat: Callable[[], None], beat_s: float) -> T:
        """Wait for the result, and call `beat` every `beat_s` seconds meanwhile.

        If the fork ended without a result, run the work in this process and raise its errors.
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
