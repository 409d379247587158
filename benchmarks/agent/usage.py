"""CPU time (to the nanosecond) and memory of a process and its children; shared pages are divided among them."""

import os
import time
from dataclasses import dataclass
from math import nan
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Use:
    """CPU time so far and memory at present."""

    cpu_s: float
    rss_mib: float
    pss_mib: float
    at_s: float


def use(pid: int | None = None) -> Use:
    """Of the process (None: this one) and all it started that still run; of one that ended, NaN."""
    root = psutil.Process(pid if pid is not None else os.getpid())
    cpu_s = rss = pss = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            cpu_s += time.clock_gettime(cpu_clock(process.pid))
            sizes = _rollup(process.pid)
        except (ProcessLookupError, FileNotFoundError):  # it ended, or just waits to be collected
            sizes = {"Rss": 0, "Pss": 0}
            cpu_s = nan if process == root else cpu_s
        rss, pss = rss + sizes["Rss"], pss + sizes["Pss"]
    return Use(cpu_s, rss / 1024, pss / 1024, time.monotonic())


def cpu_clock(pid: int) -> int:
    """Return the clock of all CPU time a process used so far; clock_getcpuclockid(3) on Linux."""
    return ~pid << 3 | 2


def _rollup(pid: int) -> dict[str, int]:
    """Sizes of a process in KiB."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {words[0].rstrip(":"): int(words[1]) for words in lines}
