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
_ALIGN = 64
"""Bytes to multiples of which arrays are aligned in a result."""


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
        self._result = os.memfd_create("result")
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
        os.close(self._result)
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
        beat()
        while not select.select([self._reader], [], [], beat_s)[0]:
            beat()
        if not os.read(self._reader, 1):
            return self._work(lambda count: None)
        result: T = _read(self._result)
        return result

    def _run(self, parent: int, writer: int) -> NoReturn:
        try:
            end_with_parent(parent)
            os.close(self._reader)
            _write(self._result, self._work(self._report))
            os.write(writer, b"\1")
        finally:
            os._exit(0)

    def _report(self, count: int) -> None:
        _COUNT.pack_into(self._shared, 0, count)


def _write(file: int, value: Any) -> None:
    """Write a value to a file in memory: the sizes of what follows, its pickled form without arrays, and each array.

    Measured for 70 MB of arrays: 0.1 s of CPU in both processes, and 0.4 s through a pipe, on which they are copied.
    """
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts = [memoryview(pickled), *(array.raw() for array in arrays)]
    sizes = _COUNT.pack(len(parts)) + b"".join(_COUNT.pack(part.nbytes) for part in parts)
    for part in (memoryview(sizes), *parts):
        while part:
            part = part[os.write(file, part) :]
        os.lseek(file, _aligned(os.lseek(file, 0, os.SEEK_CUR)), os.SEEK_SET)


def _read(file: int) -> Any:
    """Return the value in a file of `_write`. Its arrays stay in the file's memory; a change of one copies its page."""
    pages = memoryview(mmap.mmap(file, 0, mmap.MAP_PRIVATE))
    (count,) = _COUNT.unpack_from(pages)
    sizes = [size for (size,) in _COUNT.iter_unpack(pages[_COUNT.size : (count + 1) * _COUNT.size])]
    at, parts = (count + 1) * _COUNT.size, []
    for size in sizes:
        at = _aligned(at)
        parts.append(pages[at : at + size])
        at += size
    return pickle.loads(parts[0], buffers=parts[1:])


def _aligned(at: int) -> int:
    return -(-at // _ALIGN) * _ALIGN
