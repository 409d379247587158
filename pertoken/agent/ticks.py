"""When ticks are: integer epoch seconds aligned to the interval, strictly rising whatever the clock does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TickTime:
    """When a tick is filed, and what is odd about it."""

    ts: int
    missed: int
    """Ticks that should have been between this one and the last."""
    clock_behind: bool
    """The clock was stepped back: rows go on from the last one until it has caught up."""


def tick_time(now: float, interval_s: int, last_ts: int | None) -> TickTime:
    """The tick for the wall-clock time `now` after the row at `last_ts`."""
    aligned = int(now) // interval_s * interval_s
    if last_ts is None:
        return TickTime(aligned, 0, False)
    if aligned <= last_ts:
        return TickTime(last_ts + interval_s, 0, True)
    return TickTime(aligned, (aligned - last_ts - 1) // interval_s, False)


def next_tick(now: float, interval_s: int) -> int:
    """When the next tick after `now` is due: the wall clock's next multiple of the interval."""
    return (int(now) // interval_s + 1) * interval_s


LATENCY_S = 5
"""Latencies are read by the first tick of each stretch of this length. Buckets are most of a page and go on counting
while nobody reads them, so a minute has them all; only those of the last seconds of a life are lost."""


def reads_latencies(ts: int, last_ts: int | None) -> bool:
    """Whether the tick `ts` reads the latencies of engines; `last_ts` is the tick before."""
    return last_ts is None or ts // LATENCY_S != last_ts // LATENCY_S


PROCESS_LIST_S = 10
"""Least time between two process lists, the one slow call of a driver..."""
PROCESS_LIST_TICKS = 4
"""...and the least ticks, so that most are without, however long the interval."""


def lists_processes(ts: int, listed_ts: int | None, interval_s: int) -> bool:
    """Whether the tick `ts` lists the processes on the devices; `listed_ts` is the last that did."""
    return listed_ts is None or ts - listed_ts >= max(PROCESS_LIST_S, PROCESS_LIST_TICKS * interval_s)
