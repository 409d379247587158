"""CPU time of other processes during a measurement, and a clock that excludes it."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

MAX_STOLEN = 0.05
"""Share of the processor that others may use in a round; above, it is repeated."""


class Stolen:
    """Share of all cores that neither these processes nor idleness used while it was entered."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._of_process_s: dict[int, float] = {}
        self.share = 0.0

    def __enter__(self) -> Self:
        self._busy_s, self._own_s, self._at_s = _busy_s(), self._used_s(), time.monotonic()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        others_s = _busy_s() - self._busy_s - (self._used_s() - self._own_s)
        elapsed_s = (time.monotonic() - self._at_s) * (psutil.cpu_count() or 1)
        self.share = max(0.0, others_s / elapsed_s) if elapsed_s else 0.0

    def _used_s(self) -> float:
        for process in self._processes:
            # The time of a process that ended meanwhile is the last that was seen.
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._of_process_s[process.pid] = times.user + times.system
        return sum(self._of_process_s.values())


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def cpu_clock(pid: int) -> Callable[[], float]:
    """Return a clock of the CPU time of another process: of one thread that computes, it leaves out who else does."""
    clock_id = (~pid << 3) | 2  # Linux: the clock of all threads of another process
    assert Path(f"/proc/{pid}").exists()
    return lambda: time.clock_gettime(clock_id)
