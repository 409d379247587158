"""Time that a row covers, and the part of it that was watched."""

from pertoken.agent.rows.tick_state import RowInterval
from pertoken.store.schema.rows import CounterState
from tests.agent.values import START_MS, moment, tick_state

OWNER = 7


def test_a_row_covers_the_time_since_the_one_before_and_two_ticks_of_it_count_as_watched() -> None:
    state = tick_state(monotonic_ms=START_MS, row_ends={OWNER: START_MS})
    assert state.row_interval(OWNER, moment(1)) == RowInterval(10_000, 10_000)
    assert state.row_interval(OWNER, moment(3)) == RowInterval(30_000, 20_000)


def test_a_new_owner_begins_with_the_tick_before() -> None:
    assert tick_state(monotonic_ms=START_MS + 10_000).row_interval(OWNER, moment(2)) == RowInterval(10_000, 10_000)
    assert tick_state().row_interval(OWNER, moment(2)) == RowInterval(0, 0)


def test_a_process_that_began_within_the_row_cuts_it_to_its_life() -> None:
    state = tick_state(monotonic_ms=START_MS, row_ends={OWNER: START_MS})
    assert state.row_interval(OWNER, moment(1), since_ms=START_MS + 4_000) == RowInterval(6_000, 6_000)


def test_counters_cover_the_time_since_the_last_page() -> None:
    state = tick_state(monotonic_ms=START_MS + 10_000, row_ends={OWNER: START_MS})
    assert state.row_interval(OWNER, moment(2), page_ms=START_MS) == RowInterval(20_000, 20_000)


def test_the_age_of_the_last_page_is_that_of_its_counters_for_an_agent_that_came_back() -> None:
    assert tick_state(pages={OWNER: moment(1)}).since_page_ms(OWNER, moment(4)) == 30_000
    counted = {OWNER: {"generated_tokens": CounterState(OWNER, "generated_tokens", 5, 1, START_MS // 1000 - 60)}}
    assert tick_state(counters=counted).since_page_ms(OWNER, moment(1)) == 70_000


def test_an_earlier_moment_of_a_tick_keeps_its_name() -> None:
    when = moment(2).earlier(START_MS + 15_000)
    assert (when.ts, when.wall_ms, when.monotonic_ms) == (moment(2).ts, START_MS + 15_000, START_MS + 15_000)
