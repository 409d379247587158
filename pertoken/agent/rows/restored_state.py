"""State restored when an agent starts, from the rows stored before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from pertoken.agent.clocks import RecordedClock
from pertoken.agent.host.processes import boot_ms
from pertoken.agent.readings import ProbeReading
from pertoken.agent.rows.counters import boot_life, is_bucket, page_life, process_life
from pertoken.agent.rows.devices import ENERGY, host_id_of
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.store.schema.rows import CounterState
from pertoken.store.write.restored_state import RestoredState

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
    states, life = tick_state.counters.get(host_id, {}), boot_life(boot_id)
    if not baseline or host_id not in tick_state.known_owners:
        yield CounterState(host_id, WATCHED, moment.monotonic_ms, life, moment.ts)
    if FIRST_WATCHED not in states:
        yield CounterState(host_id, FIRST_WATCHED, moment.monotonic_ms, life, moment.ts)
    if moment.offset_ms is not None and not baseline:
        offset = states.get(CLOCK_OFFSET)
        if offset is None or offset.life != life or abs(offset.value - moment.offset_ms) >= MIN_MOVED_MS:
            yield CounterState(host_id, CLOCK_OFFSET, moment.offset_ms, life, moment.ts)


_SAME_START_MS = 20
"""Starts by the wall clock (before schema 0005) were rounded twice from clock ticks of 10 ms."""


@dataclass(frozen=True, slots=True)
class Restored:
    """State that an agent goes on from."""

    tick_state: TickState
    clock: RecordedClock
    last_ts: int | None
    """Of the last row stored for this host; None for a new host."""


def restored(
    stored: RestoredState, probe: ProbeReading, starts_ms: Collection[int], *, wall_ms: int, since_boot_ms: int
) -> Restored:
    """Return the state that an agent starting now goes on from, on the host of `probe`.

    `starts_ms`: starts of the engines' processes seen now, since boot; `wall_ms`, `since_boot_ms`: the clocks now.
    """
    host_id, life = host_id_of(probe), boot_life(probe.host.boot_id)
    counters: dict[int, dict[str, CounterState]] = {}
    buckets: dict[int, dict[str, CounterState]] = {}
    for state in _with_lives(stored, probe, starts_ms):
        states = (buckets if is_bucket(state.series) else counters).setdefault(state.owner_id, {})
        states[state.series] = state
    host = counters.get(host_id, {})
    watched = host.get(WATCHED)
    newest_ts = stored.newest_ts(host_id)
    last_ts = newest_ts if watched is None else watched.ts
    if watched is not None and watched.life == life:
        watching_since_ms = min(watched.value, since_boot_ms)
        away_ms = since_boot_ms - watching_since_ms
    else:
        # Of an earlier boot, or (before schema 0005) only known by the wall clock.
        earlier = watched is not None or stored.boot(host_id)[0] not in (None, probe.host.boot_id)
        watching_since_ms = 0 if earlier else since_boot_ms
        away_ms = 0 if last_ts is None else max(0, min(wall_ms - last_ts * 1000, since_boot_ms))
    offset = host.get(CLOCK_OFFSET)
    same_boot = offset is not None and offset.life == life
    clock = RecordedClock(offset.value if offset is not None and same_boot else wall_ms - since_boot_ms)
    first = host.get(FIRST_WATCHED)
    first_ms = since_boot_ms if first is None else first.value if first.life == life else 0
    tick_state = TickState(
        watching_since_ms=watching_since_ms,
        boot_ms=boot_ms(),
        begun=stored.lives(host_id, first_ms),
        away_ms=away_ms,
        engine_urls=stored.engine_urls(host_id),
        counters=counters,
        buckets=buckets,
        known_owners=stored.known_owners(host_id),
        last_ts=last_ts,
        newest_ts=max((ts for ts in (last_ts, newest_ts) if ts is not None), default=None),
        set_back_ts=newest_ts if last_ts is not None and newest_ts is not None and newest_ts > last_ts else 0,
        epochs={epoch.deployment_id: epoch for epoch in stored.open_epochs(host_id)},
        capabilities={(capability.owner_id, capability.metric): capability for capability in stored.capabilities()},
    )
    return Restored(tick_state, clock, last_ts)


def _with_lives(stored: RestoredState, probe: ProbeReading, starts_ms: Collection[int]) -> list[CounterState]:
    """Return the stored states; those older than schema 0005 with a life where their process can be identified."""
    states = stored.counters()
    if not any(state.process_start_ms is not None for state in states):
        return list(states)
    boot_id = probe.host.boot_id
    stored_boot_id, stored_boot_ms = stored.boot(host_id_of(probe))
    return [
        state
        if state.process_start_ms is None
        else _identified(state, boot_id, starts_ms, stored_boot_id, stored_boot_ms)
        for state in states
    ]


def _identified(
    state: CounterState,
    boot_id: str | None,
    starts_ms: Collection[int],
    stored_boot_id: str | None,
    stored_boot_ms: int | None,
) -> CounterState:
    start_ms = state.process_start_ms
    assert start_ms is not None
    life = None
    if start_ms < 0:
        life = page_life(-start_ms)
    elif state.series == ENERGY:
        life = boot_life(stored_boot_id)
    elif stored_boot_id is not None and stored_boot_id != boot_id:
        life = process_life(stored_boot_id, start_ms)  # none of this boot
    elif stored_boot_ms is not None:
        own_ms = start_ms - stored_boot_ms
        same = next((start_ms for start_ms in starts_ms if abs(start_ms - own_ms) <= _SAME_START_MS), None)
        life = process_life(boot_id, same)
    return replace(state, life=life)  # with its old start, so that it is stored again
