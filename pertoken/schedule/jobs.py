"""Periodic work of one program: what is done how often, and how it went, for other processes to read.

The states lie in a file beside the database. It is rewritten whole and never synchronised: it describes one running
process, whose pid it names, and means nothing after it.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pertoken.units import format_duration

AGENT, ADVISOR = "agent", "advisor"
"""Programs that have jobs; each writes its states to a file of its own."""
OVERDUE_S = 60.0
"""A job that is later than its own period and this does not run as it should."""


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of periodic work."""

    name: str
    work: Callable[[], None]
    every_s: float
    first_s: float = 0.0
    """From the start to the first run."""
    beside: bool = False
    """Whether it takes long and runs in another thread; else in the thread that runs the program's own work."""
    retry_s: tuple[float, float] | None = None
    """First and longest bound of the wait after a failed run; the bound doubles with each failure in a row and the wait
    is drawn from 0 to it, so that many hosts do not return together. None: the next run comes after `every_s`."""


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job went and when it runs next; times are Unix seconds by the wall clock when this was noted."""

    name: str
    every_s: float
    next_ts: float
    last_ts: float | None = None
    """Start of the last run; None before the first."""
    took_s: float | None = None
    error: str | None = None
    """Why the last run failed; None if it did not."""

    def overdue(self, now_ts: float) -> bool:
        """Return whether it should have run long before `now_ts`."""
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
    new.chmod(0o640)
    new.rename(file)


def read_states(folder: Path, pid: int, program: str = AGENT) -> tuple[JobState, ...]:
    """Return the states of the jobs of the process `pid`; none if it has not noted any."""
    try:
        noted = json.loads(_file(folder, program).read_text(encoding="utf-8"))
        return tuple(JobState(**state) for state in noted["jobs"]) if noted["pid"] == pid else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _file(folder: Path, program: str) -> Path:
    return folder / f"{program}.jobs.json"
