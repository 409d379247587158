"""Times of ticks: integer epoch seconds of recorded time (`agent.host.recorded_clock`), aligned to the interval."""

from collections.abc import Callable
from dataclasses import dataclass

EARLY_MS = 20
"""A tick this little before its time is of that time: recorded time is corrected by milliseconds now and then."""
MAX_SLEWED_S = 600
"""Recorded time that is behind the newest row by up to this catches up with it at half speed."""
SLEWED_TICKS = 2
"""Intervals between two rows meanwhile: as many as one row may span and still count as observed."""


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


def next_tick(now: float, interval_s: int) -> int:
    """Return when the next tick after `now` is due: the next multiple of the interval by recorded time."""
    return (int(now) // interval_s + 1) * interval_s


LATENCY_S = 5
"""Latencies are read by the first tick of each stretch of this length. Buckets are most of a page and go on counting
while nobody reads them, so a minute has them all; only those of the last seconds of a life are lost."""


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
