"""Counter states of the host's own time, stored with each tick so that an agent that starts can go on from them.

These states lie beside those of counters, of the host as their owner and with its boot as their life.
"""

from collections.abc import Iterator

from pertoken.agent.rows.counting.life_ids import boot_life
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.store.schema.rows import CounterState

WATCHED = "watched_ms"
"""Time since boot up to which this host's rows reach."""
FIRST_WATCHED = "first_watched_ms"
"""Time since boot at which this host was first watched."""
CLOCK_OFFSET = "clock_offset_ms"
"""Recorded time minus time since boot."""
MIN_MOVED_MS = 500
"""Recorded time that moved less against the time since boot is not stored again."""


def host_states(
    tick_state: TickState, host_id: int, boot_id: str | None, moment: Moment, baseline: bool
) -> Iterator[CounterState]:
    """Yield the states of the host's time that a tick stores; with `baseline`, of a new host alone."""
    known, life = tick_state.counters.get(host_id, {}), boot_life(boot_id)
    if not baseline or host_id not in tick_state.known_owners:
        yield CounterState(host_id, WATCHED, moment.monotonic_ms, life, moment.ts)
    if FIRST_WATCHED not in known:
        yield CounterState(host_id, FIRST_WATCHED, moment.monotonic_ms, life, moment.ts)
    if moment.offset_ms is not None and not baseline:
        offset = known.get(CLOCK_OFFSET)
        if offset is None or offset.life != life or abs(offset.value - moment.offset_ms) >= MIN_MOVED_MS:
            yield CounterState(host_id, CLOCK_OFFSET, moment.offset_ms, life, moment.ts)
