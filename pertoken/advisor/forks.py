"""Forks of this process that compute at the same time, to use all processors."""

import gc
import mmap
import os
import pickle
import select
import signal
import struct
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

from pertoken.advisor.worker.confine import end_with_parent
from pertoken.window.progress import TICK_S, Progress

T = TypeVar("T")
Work = Callable[[Progress], T]
"""Work of this program on values in memory. It reports its progress, opens no files and returns a picklable value."""
_STEP = struct.Struct("d120s")
"""Share of a phase that is done, and its name."""


def processors() -> int:
    """Return how many forks can run at once; 1 where another thread runs, since a fork may copy its locks."""
    return len(os.sched_getaffinity(0)) if threading.active_count() == 1 else 1


def in_forks(works: Sequence[Work[T]], progress: Progress) -> list[T]:
    """Return the results of works, each done in a fork of its own; a single one is done in this process.

    Where a fork ends without a result, its work is done in this process, which raises its errors.
    """
    if len(works) == 1:
        return [works[0](progress)]
    with ExitStack() as stack:
        forks = [stack.enter_context(Fork(work)) for work in works]
        return [fork.result(progress) for fork in forks]


class Fork(Generic[T]):
    """Work in a forked process; leaving the context ends the process."""

    def __init__(self, work: Work[T]) -> None:
        """Start `work`."""
        self._work = work
        self._step = mmap.mmap(-1, _STEP.size)
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

    def result(self, progress: Progress) -> T:
        """Wait for the result, and report the progress of the work meanwhile."""
        while not select.select([self._reader], [], [], TICK_S)[0]:
            share, phase = _STEP.unpack_from(self._step)
            if text := phase.rstrip(b"\0").decode(errors="replace"):
                progress(text, share)
        if not os.read(self._reader, 1):
            return self._work(progress)
        with os.fdopen(os.dup(self._result), "rb") as file:
            file.seek(0)
            result: T = pickle.load(file)
        return result

    def _run(self, parent: int, writer: int) -> NoReturn:
        try:
            end_with_parent(parent)
            os.close(self._reader)
            gc.freeze()  # finalizers of the parent's objects, such as connections, must not run in this process
            with os.fdopen(os.dup(self._result), "wb") as file:
                pickle.dump(self._work(self._note), file)
            os.write(writer, b"\1")
        finally:
            os._exit(0)

    def _note(self, phase: str, share: float) -> None:
        _STEP.pack_into(self._step, 0, share, phase.encode())
