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
