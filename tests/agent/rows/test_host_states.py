"""States of the host's own time."""

from dataclasses import replace

from pertoken.agent.rows.counters import boot_life
from pertoken.agent.rows.restored_state import CLOCK_OFFSET, FIRST_WATCHED, WATCHED, host_states
from pertoken.agent.rows.tick_state import TickState
from pertoken.store.schema.rows import CounterState
from tests.agent.values import moment, tick_state

HOST = 5


def series(tick_state: TickState, offset_ms: int | None, baseline: bool = False) -> dict[str, int]:
    when = replace(moment(3), offset_ms=offset_ms)
    return {state.series: state.value for state in host_states(tick_state, HOST, "boot", when, baseline)}


def known(**values: int) -> TickState:
    life = boot_life("boot")
    states = {name: CounterState(HOST, name, value, life, 1) for name, value in values.items()}
    return tick_state(counters={HOST: states}, known_owners=frozenset([HOST]))


def test_a_new_host_is_watched_from_its_baseline_on() -> None:
    now_ms = moment(3).monotonic_ms
    assert series(tick_state(), None, baseline=True) == {WATCHED: now_ms, FIRST_WATCHED: now_ms}


def test_a_known_host_stores_nothing_at_the_baseline_and_its_time_in_each_tick() -> None:
    before = known(**{FIRST_WATCHED: 1, CLOCK_OFFSET: 100})
    assert series(before, 100, baseline=True) == {}
    assert series(before, 100) == {WATCHED: moment(3).monotonic_ms}


def test_the_offset_of_the_clock_is_stored_once_it_moved_by_half_a_second() -> None:
    before = known(**{FIRST_WATCHED: 1, CLOCK_OFFSET: 100})
    assert CLOCK_OFFSET not in series(before, 599)
    assert series(before, 600)[CLOCK_OFFSET] == 600
