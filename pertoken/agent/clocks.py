"""Times of ticks: integer epoch seconds of recorded time (`agent.clocks`), aligned to the interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pertoken.agent.host.processes import since_boot_ms

EARLY_MS = 20
"""A tick this little before its time is of that time: recorded time is corrected by milliseconds now and then."""
MAX_SLEWED_S = 600
"""Recorded time that is behind the newest row by up to this catches up with it at half speed."""
SLEWED_TICKS = 2
"""Intervals between two rows meanwhile: as many as one row may cover and still count as observed."""


@dataclass(frozen=True, slots=True)
class TickTime:
    """Time under which a tick is filed."""

    ts: int
    missed: int
    """Ticks that should have been between this one and the last."""


def tick_time(
    now_ms: int,
    interval_s: int,
    last_ts: int | None,
    newest_ts: int | None = None,
    *,
    since_last_ms: int = 0,
    taken: Callable[[int, int], frozenset[int]] = lambda start, end: frozenset(),
) -> TickTime | None:
    """Return the tick for the recorded time `now_ms` (Unix ms), or None if it makes no row.

    `last_ts` is of the row before, `newest_ts` of the newest row stored (None: the same), `since_last_ms` the time
    since the row before, and `taken(start, end)` returns the seconds of which there are rows with start <= ts < end.

    After a step back, time is recorded that has rows already, and a key holds one row. A large step (beyond
    `MAX_SLEWED_S`) takes the first free second of its interval. A small one, and one into an interval without a free
    second, goes on after the newest row with every second tick, until the clock is past it: order is kept, and all time
    stays observed.
    """
    ts = (now_ms + EARLY_MS) // 1000 // interval_s * interval_s
    if last_ts is None:
        return TickTime(ts, 0)
    newest_ts = last_ts if newest_ts is None else max(newest_ts, last_ts)
    if ts > newest_ts:
        # A step forward passes over seconds, but misses no tick.
        return TickTime(ts, max(0, min((ts - last_ts - 1) // interval_s, since_last_ms // (1000 * interval_s))))
    if newest_ts - ts > MAX_SLEWED_S:
        rows = taken(ts, ts + interval_s)
        free = next((second for second in range(ts, ts + interval_s) if second not in rows), None)
        if free is not None:
            return TickTime(free, 0)
    if since_last_ms + EARLY_MS < 1000 * SLEWED_TICKS * interval_s:
        return None
    return TickTime(newest_ts // interval_s * interval_s + interval_s, 0)


def next_tick(now_s: float, interval_s: int) -> int:
    """Return when the next tick after `now_s` is due: the next multiple of the interval by recorded time."""
    return (int(now_s) // interval_s + 1) * interval_s


LATENCY_S = 5
"""Latencies are read by the first tick of each interval of this length. Buckets are most of a page and go on counting
while nobody reads them, so a minute has them all; only the last seconds of a life are lost."""


def reads_latencies(ts: int, last_ts: int | None) -> bool:
    """Return whether the tick `ts` reads the latencies of engines; `last_ts` is the tick before."""
    return last_ts is None or ts // LATENCY_S != last_ts // LATENCY_S


PROCESS_LIST_S = 10
"""Least time between two process lists, the one slow call of a driver..."""
PROCESS_LIST_TICKS = 4
"""...and the least ticks, so that most are without, however long the interval."""


def process_list_s(interval_s: int) -> int:
    """Return the time between two lists of the processes on the devices."""
    return max(PROCESS_LIST_S, PROCESS_LIST_TICKS * interval_s)


MAX_SMALL_STEP_MS = 30_000
"""Steps of the wall clock up to this are taken over at once."""
LASTS_MS = 300_000
"""A larger step is taken over once it has lasted this long."""
MIN_TOLD_MS = 1_000
"""Steps shorter than this are no event: a clock that is slewed moves so."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this host, in milliseconds."""

    wall_ms: Callable[[], int] = lambda: round(time.time() * 1000)
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

    def follow(self, wall_ms: int, boot_ms: int) -> tuple[RecordedClock, str | None]:
        """Return the clock after a look at the wall clock, and a message for people about a step of it, if any."""
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


CONFIRM_S = 3600.0
MAX_STEP_S = 60.0
"""A smaller step since both clocks were compared first is not taken for a wrong clock..."""
MAX_DRIFT = 1e-3
"""...nor is a wall clock that runs faster or slower by this: twice as much as the kernel slews one."""


class PurgeClock:
    """Compares the wall clock with the time since boot, in which a suspended machine counts too."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._wall, self._since_boot = wall, since_boot
        self._restart()

    def _restart(self) -> None:
        self._began_s, self._wall_began_s = self._since_boot(), self._wall()

    def now_ts(self) -> int | None:
        """Return Unix seconds to judge the age of rows by; None while the wall clock is not confirmed. Call it
        often."""
        elapsed_s, wall_s = self._since_boot() - self._began_s, self._wall()
        if abs(wall_s - self._wall_began_s - elapsed_s) > MAX_STEP_S + MAX_DRIFT * elapsed_s:
            self._restart()
            return None
        return int(wall_s) if elapsed_s >= CONFIRM_S else None
