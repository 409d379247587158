"""Peaks of an engine's counters as counter states of two owners of their own, so that a restart keeps them.

A peak changes only where a counter falls, jumps or passes it again: other ticks store nothing.
"""

from collections.abc import Mapping
from functools import cache

from pertoken.agent.rows.counting.counters import Peak
from pertoken.agent.rows.tick_state import TickState
from pertoken.store.schema.rows import CounterState
from pertoken.store.schema.shared import stable_id


def stored_peaks(tick_state: TickState, engine_id: int) -> dict[str, Peak]:
    """Return the peaks of an engine, by series, as they were last stored."""
    value_owner, fallen_owner = _owners(engine_id)
    values = _states(tick_state, value_owner)
    if not values:
        return {}
    fallen = _states(tick_state, fallen_owner)
    return {series: Peak(state.value, fallen[series].value) for series, state in values.items() if series in fallen}


def peak_states(
    engine_id: int, before: Mapping[str, Peak], now: Mapping[str, Peak], *, life: int | None, ts: int
) -> tuple[tuple[CounterState, ...], tuple[tuple[int, str], ...]]:
    """Return the states to store for the peaks that changed, and (owner, series) of those to remove."""
    if before == now:
        return (), ()
    owners = _owners(engine_id)
    states = (
        CounterState(owner_id, series, number, life, ts)
        for series, peak in now.items()
        if before.get(series) != peak
        for owner_id, number in zip(owners, peak, strict=True)
    )
    return tuple(states), tuple((owner_id, series) for series in before.keys() - now.keys() for owner_id in owners)


def _states(tick_state: TickState, owner_id: int) -> dict[str, CounterState]:
    return {**tick_state.counters.get(owner_id, {}), **tick_state.buckets.get(owner_id, {})}


@cache
def _owners(engine_id: int) -> tuple[int, int]:
    """Return the owners of the values and of the falls of an engine's peaks."""
    return stable_id("peak", engine_id), stable_id("peak fallen", engine_id)
