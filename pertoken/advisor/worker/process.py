"""Process of a worker from the parent's side: start it, read its lines, and end it with its descendants."""

import contextlib
import os
import select
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

from pertoken.advisor.worker.child import Task, supervise
from pertoken.advisor.worker.limits import Limits

HEARTBEAT_S = 1.0
"""Interval of progress reports while a rule runs, seconds."""
GRACE_S = 5.0
"""Time for a supervisor to end its descendants, seconds."""


class TooMuch(Exception):
    """A worker exceeded its time or the size of its output."""


@contextlib.contextmanager
def started(tasks: Sequence[Task], limits: Limits) -> Iterator[int]:
    """Yield the pipe on which a new worker reports; end all its processes on exit."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="pertoken-rules-")
        stack.callback(_remove, folder)
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        with contextlib.ExitStack() as given:
            given.callback(os.close, writer)
            output = os.memfd_create("output")
            given.callback(os.close, output)
            parent = os.getpid()
            with warnings.catch_warnings():
                # In a process with threads a child must not wait for a lock of another thread. This child uses no file
                # or database of its parent, Python resets the locks of its runtime after a fork, and a child that
                # still hangs is killed.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                supervise(parent, tasks, limits, folder, writer, output)
        stack.callback(_end, pid, reader)
        yield reader


def lines(pipe: int, limits: Limits, tasks: int, beat: Callable[[float], None]) -> Iterator[bytes]:
    """Yield the lines that a worker reports; call `beat` with the elapsed seconds at least every `HEARTBEAT_S`.

    Raises TooMuch if the worker exceeds its time or the size of its output.
    """
    began = time.monotonic()
    limit_s = limits.plugin_s * tasks + GRACE_S
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    rest, returned = b"", 0
    while True:
        beat(seconds := time.monotonic() - began)
        if seconds > limit_s:
            raise TooMuch(f"took longer than {limits.plugin_s:g} s")
        if not poll.poll(HEARTBEAT_S * 1000):
            continue
        part = os.read(pipe, 2**20)
        if not part:
            return
        returned += len(part)
        *complete, rest = (rest + part).split(b"\n")
        if returned > limits.returned_bytes or len(rest) > 4 * limits.call_bytes:
            raise TooMuch(f"returned more than {limits.returned_bytes:,} bytes")
        yield from filter(None, complete)


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, reader: int) -> None:
    """End a worker; its pipe closes when its last process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while (left_s := deadline - time.monotonic()) > 0:
        if poll.poll(left_s * 1000) and not os.read(reader, 2**20):
            break
    else:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the parent may ignore SIGCHLD, which reaps children at once
        os.waitpid(pid, 0)
