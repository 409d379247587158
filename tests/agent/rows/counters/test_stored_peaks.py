"""Peaks of counters, stored as states and read back."""

from pertoken.agent.rows.counters import Peak, peak_states, stored_peaks
from pertoken.agent.rows.tick_state import TickState
from pertoken.store.schema.rows import CounterState
from tests.agent.values import tick_state

ENGINE, OTHER = 3, 4


def restarted(states: tuple[CounterState, ...]) -> TickState:
    counters: dict[int, dict[str, CounterState]] = {}
    for state in states:
        counters.setdefault(state.owner_id, {})[state.series] = state
    return tick_state(counters=counters)


def test_peaks_come_back_as_they_were_stored_and_only_those_of_their_engine() -> None:
    peaks = {"generated_tokens": Peak(900, 100), "prompt_tokens": Peak(50, 50)}
    states, gone = peak_states(ENGINE, {}, peaks, life=1, ts=10)
    assert gone == ()
    assert stored_peaks(restarted(states), ENGINE) == peaks
    assert stored_peaks(restarted(states), OTHER) == {}


def test_only_peaks_that_changed_are_stored_and_those_that_were_passed_removed() -> None:
    before = {"generated_tokens": Peak(900, 100), "prompt_tokens": Peak(50, 50)}
    assert peak_states(ENGINE, before, before, life=1, ts=10) == ((), ())
    states, gone = peak_states(ENGINE, before, {"generated_tokens": Peak(900, 120)}, life=1, ts=10)
    assert [(state.series, state.value) for state in states] == [("generated_tokens", 900), ("generated_tokens", 120)]
    assert [series for _, series in gone] == ["prompt_tokens"] * 2
    assert len({owner for owner, _ in gone}) == 2
