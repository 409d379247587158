"""Recorded time: the wall clock, as far as the time since the host's boot confirms it.

Rows are stamped with recorded time. It runs with the time since boot, which nobody can set, and takes over what the
wall clock is set to only if that is a small step, as time synchronisation makes them, or has lasted for some minutes.
A clock that is wrong for seconds therefore moves no row.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pertoken.agent.host.processes import since_boot_ms

MAX_SMALL_STEP_MS = 30_000
"""Steps of the wall clock up to this are taken over at once."""
LASTS_MS = 300_000
"""A larger step is taken over once it has lasted this long."""
MIN_TOLD_MS = 1_000
"""Steps shorter than this are no event: a clock that is slewed moves so."""


def _wall_ms() -> int:
    return round(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this host, in milliseconds."""

    wall_ms: Callable[[], int] = _wall_ms
    """Unix time as it is set."""
    since_boot_ms: Callable[[], int] = since_boot_ms
    """Time since boot, time suspended included."""


@dataclass(frozen=True, slots=True)
class RecordedClock:
    """Recorded time as a distance to the time since boot, in milliseconds."""

    offset_ms: int
    """Recorded time minus time since boot."""
    pending: tuple[int, int] | None = None
    """A step not taken over yet: (the wall clock's offset since then, time since boot at which it was seen)."""

    def at(self, boot_ms: int) -> int:
        """Return the recorded time (Unix ms) at a time since boot."""
        return boot_ms + self.offset_ms

    @property
    def confirmed(self) -> bool:
        """Whether recorded time and the wall clock agree; False while a step is waited out."""
        return self.pending is None

    def follow(self, wall_ms: int, boot_ms: int) -> tuple["RecordedClock", str | None]:
        """Return the clock after a look at the wall clock, and what happened to it, for people, if anything did."""
        offset_ms = wall_ms - boot_ms
        step_ms = offset_ms - self.offset_ms
        if abs(step_ms) <= MAX_SMALL_STEP_MS:
            text = None
            if self.pending is not None:
                lasted_s = (boot_ms - self.pending[1]) // 1000
                text = f"the clock is back after {lasted_s} s: recorded time did not follow it"
            elif abs(step_ms) >= MIN_TOLD_MS:
                text = f"the clock was set {_step_text(step_ms)}: recorded time follows it"
            return RecordedClock(offset_ms), text
        if self.pending is None or abs(offset_ms - self.pending[0]) > MAX_SMALL_STEP_MS:
            text = f"the clock was set {_step_text(step_ms)}: recorded time goes on as before until that has lasted "
            return replace(self, pending=(offset_ms, boot_ms)), f"{text}{LASTS_MS // 1000} s"
        if boot_ms - self.pending[1] < LASTS_MS:
            return self, None
        lasted_s = (boot_ms - self.pending[1]) // 1000
        text = f"the clock was set {_step_text(step_ms)}, and that lasted {lasted_s} s: recorded time follows it"
        return RecordedClock(offset_ms), text


def _step_text(step_ms: int) -> str:
    """Return a step of the clock for people: `forward by 1000 days`, `back by 5.0 s`."""
    size_s = abs(step_ms) / 1000
    for unit_s, unit in ((86_400, "days"), (3600, "hours"), (60, "min")):
        if size_s >= 2 * unit_s:
            return f"{'forward' if step_ms > 0 else 'back'} by {size_s / unit_s:.0f} {unit}"
    return f"{'forward' if step_ms > 0 else 'back'} by {size_s:.1f} s"
