"""Periodic jobs of one program, and their states for other processes.

The states are in a file beside the database. It is replaced as a whole and never synced to disk: it describes one
running process, by its pid, and is invalid when that process ends.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pertoken.units import format_duration

AGENT, ADVISOR = "agent", "advisor"
"""Programs with jobs; each writes its states to its own file."""
OVERDUE_S = 60.0
"""A job is overdue if it is late by more than its period plus this, seconds."""


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of periodic work."""

    name: str
    work: Callable[[], None]
    every_s: float
    first_s: float = 0.0
    """Delay of the first run after the start."""
    phase_s: float | None = None
    """Delay of each run after a multiple of `every_s` by the wall clock; None: runs are counted from the start."""
    beside: bool = False
    """Whether it is slow and runs in another thread; else it runs in the thread of the program's own work."""
    retry_s: tuple[float, float] | None = None
    """First and longest bound of the wait after a failed run; the bound doubles with each failure in a row. The wait is
    drawn from 0 to it, so that many hosts do not return together. None: the next run comes after `every_s`."""

    def wait_s(self, now_ts: float) -> float:
        """Return seconds until its first run if it is scheduled at `now_ts`."""
        return self.first_s if self.phase_s is None else (self.phase_s - now_ts) % self.every_s


@dataclass(frozen=True, slots=True)
class JobState:
    """Last run and next run of a job; times are Unix seconds by the wall clock at the time of writing."""

    name: str
    every_s: float
    next_ts: float
    last_ts: float | None = None
    """Start of the last run; None before the first."""
    took_s: float | None = None
    error: str | None = None
    """Error of the last run; None if it succeeded."""

    def overdue(self, now_ts: float) -> bool:
        """Return whether the next run is overdue at `now_ts`."""
        return now_ts > self.next_ts + self.every_s + OVERDUE_S

    def text(self, now_ts: float) -> str:
        """Return the state for people: `ran 3s ago in 0.02 s, next in 7s`."""
        if self.last_ts is None or self.took_s is None:
            ran = "has not run yet"
        else:
            ran = f"ran {format_duration(max(0.0, now_ts - self.last_ts))} ago in {self.took_s:.2f} s"
        left_s = self.next_ts - now_ts
        late = f"late by {format_duration(-left_s)}"
        due = late if self.overdue(now_ts) else f"next in {format_duration(max(0.0, left_s))}"
        return f"{ran}, {due}" + (f"; failed: {self.error}" if self.error else "")


def write_states(folder: Path, states: Iterable[JobState], program: str = AGENT) -> None:
    """Replace the states of this process's jobs. Raises OSError."""
    text = json.dumps({"pid": os.getpid(), "jobs": [asdict(state) for state in states]})
    file = _file(folder, program)
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.rename(file)


def read_states(folder: Path, pid: int, program: str = AGENT) -> tuple[JobState, ...]:
    """Return the states of the jobs of the process `pid`; empty if it has not written any."""
    try:
        noted = json.loads(_file(folder, program).read_text(encoding="utf-8"))
        return tuple(JobState(**state) for state in noted["jobs"]) if noted["pid"] == pid else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _file(folder: Path, program: str) -> Path:
    return folder / f"{program}.jobs.json"
