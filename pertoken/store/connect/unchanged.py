"""Values read from a file, which are kept until the file changes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

SETTLED_NS = 2_000_000_000
"""Age of a change from which on a later one surely has another time: file systems keep times by 4 ms to 2 s."""


class _Kept(NamedTuple):
    stamp: tuple[int, int, int]
    value: Any


class Unchanged:
    """Results of functions about a file, by function, as long as the file stays the same.

    A file that changed within the last `SETTLED_NS` is read each time: it may change again and keep its stamp.
    """

    def __init__(self, file: Path, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._file, self._clock_ns = file, clock_ns
        self._kept: dict[Callable[[], Any], _Kept] = {}

    def get(self, key: Any, read: Callable[[], T]) -> T:
        """Return what was kept under `key`, or else what `read` returns. Raises what `read` raises."""
        stamp = self._stamp()
        kept = self._kept.get(key)
        if kept is not None and kept.stamp == stamp:
            value: T = kept.value
            return value
        # The stamp was taken before: a change meanwhile is seen the next time.
        now_ns = self._clock_ns()
        value = read()
        if stamp is not None and stamp[2] < now_ns - SETTLED_NS:
            self._kept[key] = _Kept(stamp, value)
        else:
            self._kept.pop(key, None)
        return value

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return inode, size and time of the last change in ns; None where the file cannot be looked at."""
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
