from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pertoken.agent.readings import HistogramReading
from pertoken.agent.rows.counters import Advance, Peak, advance, bucket_totals, bucket_values, process_life, word_totals
from pertoken.store.schema.rows import CounterState

OWNER = 7
WATCHING_MS = 1_000_000


def life(start_ms: int | None) -> int | None:
    return process_life("boot-1", start_ms)


def step(
    states: dict[str, CounterState],
    values: dict[str, int],
    start_ms: int | None = WATCHING_MS + 5,
    ts: int = 2000,
    elapsed_s: float = 10,
    peaks: Mapping[str, Peak] = MappingProxyType({}),
) -> Advance:
    from_zero = start_ms is not None and start_ms >= WATCHING_MS
    return advance(
        states,
        values,
        owner_id=OWNER,
        life=life(start_ms),
        ts=ts,
        from_zero=from_zero,
        elapsed_s=elapsed_s,
        peaks=peaks,
    )


def test_a_process_that_started_while_watched_counts_from_zero() -> None:
    first = step({}, {"prompt_tokens": 10})
    assert first.deltas == {"prompt_tokens": 10}
    assert first.complete
    assert first.states["prompt_tokens"] == CounterState(OWNER, "prompt_tokens", 10, life(WATCHING_MS + 5), 2000)


def test_counts_from_before_the_agent_watched_are_left_out() -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=WATCHING_MS - 60_000)
    assert first.deltas == {"prompt_tokens": None}
    assert first.complete
    assert step(first.states, {"prompt_tokens": 13}, start_ms=WATCHING_MS - 60_000).deltas == {"prompt_tokens": 3}


def test_the_first_page_of_a_process_with_an_unknown_start_only_sets_the_state() -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=None)
    assert first.deltas == {"prompt_tokens": None}
    assert step(first.states, {"prompt_tokens": 13}, start_ms=None).deltas == {"prompt_tokens": 3}


def test_an_agent_restarted_beside_the_same_process_goes_on_from_its_stored_state() -> None:
    stored = step({}, {"prompt_tokens": 10}, start_ms=WATCHING_MS + 5).states
    later = advance(
        stored,
        {"prompt_tokens": 25},
        owner_id=OWNER,
        life=life(WATCHING_MS + 5),
        ts=3000,
        from_zero=False,
        elapsed_s=1000,
    )
    assert later.deltas == {"prompt_tokens": 15}
    assert later.complete


def test_a_label_set_that_appears_late_counts_from_zero() -> None:
    first = step({}, {'requests_finished{finished_reason="stop"}': 4}, start_ms=WATCHING_MS - 60_000)
    second = step(
        first.states,
        {'requests_finished{finished_reason="stop"}': 5, 'requests_finished{finished_reason="abort"}': 2},
        start_ms=WATCHING_MS - 60_000,
    )
    assert word_totals(second.deltas) == {"requests_finished": 3}
    assert second.complete


def test_a_new_process_counts_from_zero_and_the_reading_is_not_complete() -> None:
    first = step({}, {"prompt_tokens": 10, "old": 3})
    second = step(first.states, {"prompt_tokens": 40}, start_ms=WATCHING_MS + 90_000)
    assert second.deltas == {"prompt_tokens": 40}
    assert not second.complete
    assert second.reason is not None and "restarted" in second.reason
    assert second.forgotten == ("old",)
    assert "old" not in second.states
    third = step(second.states, {"prompt_tokens": 41, "old": 1}, start_ms=WATCHING_MS + 90_000)
    assert third.deltas == {"prompt_tokens": 1, "old": 1}
    assert third.complete


@pytest.mark.parametrize("later_ms", [10, 9_000])
def test_a_process_that_starts_within_seconds_of_the_one_before_is_another_one(later_ms: int) -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=WATCHING_MS + 5000)
    second = step(first.states, {"prompt_tokens": 12}, start_ms=WATCHING_MS + 5000 + later_ms)
    assert second.deltas == {"prompt_tokens": 12}
    assert not second.complete and second.restarted


def test_a_counter_that_falls_in_a_living_process_is_unknown_and_counted_from_there() -> None:
    first = step({}, {"prompt_tokens": 999_999, "generated_tokens": 5})
    second = step(first.states, {"prompt_tokens": 999_998, "generated_tokens": 6})
    assert second.deltas == {"prompt_tokens": None, "generated_tokens": 1}
    assert not second.complete and not second.restarted
    assert second.reason is not None and "prompt_tokens fell from 999999 to 999998" in second.reason
    third = step(second.states, {"prompt_tokens": 999_998, "generated_tokens": 7}, peaks=second.peaks)
    assert third.deltas == {"prompt_tokens": 0, "generated_tokens": 1}
    assert third.complete


def test_a_counter_that_rises_past_its_earlier_peak_counts_only_the_excess() -> None:
    first = step({}, {"prompt_tokens": 999_999})
    second = step(first.states, {"prompt_tokens": 5}, peaks=first.peaks)
    third = step(second.states, {"prompt_tokens": 7}, peaks=second.peaks)
    assert (third.deltas, third.complete) == ({"prompt_tokens": 2}, True)
    fourth = step(third.states, {"prompt_tokens": 1_000_009}, peaks=third.peaks)
    # Of the ten that are beyond, two are counted.
    assert fourth.deltas == {"prompt_tokens": 8}
    assert not fourth.complete and not fourth.restarted
    assert fourth.reason is not None and "rose past 999999" in fourth.reason
    fifth = step(fourth.states, {"prompt_tokens": 1_000_010}, peaks=fourth.peaks)
    assert (fifth.deltas, fifth.complete, fifth.peaks) == ({"prompt_tokens": 1}, True, {})


def test_a_counter_that_jumped_and_came_back_is_counted_once_when_it_falls_later() -> None:
    taken, counted = step({}, {"prompt_tokens": 1_000}), 0
    for value in (10**18, 1_020, 5_000, 4_000, 5_100):
        taken = step(taken.states, {"prompt_tokens": value}, elapsed_s=2, peaks=taken.peaks)
        counted += taken.deltas["prompt_tokens"] or 0
    assert counted == 5_100 - 1_020
    assert not taken.peaks


def test_a_peak_stays_as_it_is_while_its_counter_counts_on_below() -> None:
    first = step({}, {"prompt_tokens": 1_000})
    second = step(first.states, {"prompt_tokens": 400}, peaks=first.peaks)
    third = step(second.states, {"prompt_tokens": 450}, peaks=second.peaks)
    assert second.peaks == third.peaks == {"prompt_tokens": Peak(1_000, 600)}


def test_a_counter_that_was_reset_in_a_living_process_counts_on_and_loses_at_most_one_reading() -> None:
    taken = step({}, {"prompt_tokens": 1_000})
    counted = 0
    for value in range(0, 3_000, 30):
        taken = step(taken.states, {"prompt_tokens": value}, peaks=taken.peaks)
        counted += taken.deltas["prompt_tokens"] or 0
    assert counted == 2_970 - 30


def test_a_restart_forgets_where_a_counter_fell_from() -> None:
    first = step({}, {"prompt_tokens": 1_000})
    second = step(first.states, {"prompt_tokens": 5}, peaks=first.peaks)
    third = step(second.states, {"prompt_tokens": 2_000}, start_ms=WATCHING_MS + 90_000, peaks=second.peaks)
    assert (third.deltas, third.peaks) == ({"prompt_tokens": 2_000}, {})


SHOWN = st.one_of(st.just("true"), st.just("true"), st.integers(0, 50), st.integers(10**17, 10**18))


@given(st.lists(st.tuples(st.integers(0, 100), SHOWN), max_size=15))
@example([(0, 0), (0, 1)])
def test_pages_of_a_living_process_that_show_less_or_impossibly_much_add_at_most_what_they_rise_by(
    pages: list[tuple[int, str | int]],
) -> None:
    """A counter that was truly reset counts on, so that a rise from one false page to the next is counted too."""
    served, counted, complete = 1_000, 0, True
    last_false, risen = None, 0
    taken = step({}, {"tokens": served})
    for more, shown in [*pages, (0, "true")]:
        served += more
        value = served if isinstance(shown, str) else shown
        taken = step(taken.states, {"tokens": value}, peaks=taken.peaks)
        counted += taken.deltas["tokens"] or 0
        complete &= taken.complete
        if isinstance(shown, str):
            last_false = None
            assert counted <= served - 1_000 + risen
        else:
            risen += 0 if last_false is None else max(0, shown - last_false)
            last_false = shown
    assert not complete or counted == served - 1_000


@pytest.mark.parametrize(
    "series",
    ["generated_tokens", "prompt_tokens", "requests_finished", "spec_drafts", 'ttft_s{engine="0"} le=0.1'],
)
def test_an_increase_that_no_server_can_make_in_the_time_is_unknown_and_counted_from_there(series: str) -> None:
    first = step({}, {series: 10})
    second = step(first.states, {series: 10**18}, elapsed_s=2)
    assert second.deltas == {series: None}
    assert not second.complete and not second.restarted
    assert second.reason is not None and "more than a server can count" in second.reason
    third = step(second.states, {series: 10**18 + 7}, elapsed_s=2)
    assert third.deltas == {series: 7}
    assert third.complete


def test_a_process_cannot_have_counted_more_than_its_age_allows() -> None:
    first = step({}, {"generated_tokens": 10**12}, elapsed_s=60)
    assert first.deltas == {"generated_tokens": None}
    assert not first.complete


def test_a_series_last_read_of_an_earlier_process_than_the_others_is_incomplete() -> None:
    first = step({}, {"prompt_tokens": 10, "generated_tokens": 5})
    states = {**first.states, "generated_tokens": CounterState(OWNER, "generated_tokens", 5, life(7), 1000)}
    second = step(states, {"prompt_tokens": 12, "generated_tokens": 9})
    assert second.deltas == {"prompt_tokens": 2, "generated_tokens": 9}
    assert not second.complete
    assert second.reason is not None and "earlier process" in second.reason


def test_a_state_of_an_older_schema_without_an_identifiable_process_is_unknown_once() -> None:
    state = CounterState(OWNER, "prompt_tokens", 10, None, 1000, process_start_ms=1_790_000_000_000)
    first = step({"prompt_tokens": state}, {"prompt_tokens": 12})
    assert first.deltas == {"prompt_tokens": None}
    assert not first.complete
    assert step(first.states, {"prompt_tokens": 15}).deltas == {"prompt_tokens": 3}


def test_a_restart_with_an_unknown_start_is_detected_only_by_a_falling_counter() -> None:
    first = step({}, {"prompt_tokens": 10, "generated_tokens": 5}, start_ms=None)
    second = step(first.states, {"prompt_tokens": 4, "generated_tokens": 6}, start_ms=None)
    assert second.deltas == {"prompt_tokens": 4, "generated_tokens": 1}
    assert not second.complete


def test_a_series_that_vanishes_keeps_its_state() -> None:
    first = step({}, {"prompt_tokens": 10, "preemptions": 5})
    second = step(first.states, {"prompt_tokens": 11})
    assert second.missing == ("preemptions",)
    third = step(second.states, {"prompt_tokens": 11, "preemptions": 6})
    assert third.deltas == {"prompt_tokens": 0, "preemptions": 1}


def test_a_start_that_becomes_visible_is_no_restart() -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=None)
    second = step(first.states, {"prompt_tokens": 12}, start_ms=WATCHING_MS - 70_000)
    assert second.deltas == {"prompt_tokens": 2}
    assert second.complete


def test_buckets_are_counters_and_add_up_by_word_and_bounds() -> None:
    before = {
        'ttft_s{engine="0"}': HistogramReading((0.1, 1.0), (1, 0, 0)),
        'ttft_s{engine="1"}': HistogramReading((0.1, 1.0), (0, 0, 0)),
    }
    after = {
        'ttft_s{engine="0"}': HistogramReading((0.1, 1.0), (3, 1, 0)),
        'ttft_s{engine="1"}': HistogramReading((0.1, 1.0), (0, 0, 2)),
    }
    first = step({}, bucket_values(before))
    second = step(first.states, bucket_values(after))
    assert bucket_totals(after, second.deltas) == {("ttft_s", (0.1, 1.0)): (2, 1, 2)}
    assert word_totals(second.deltas) == {}
    unwatched = step({}, bucket_values(after), start_ms=None)
    assert bucket_totals(after, unwatched.deltas) == {}


def test_a_histogram_of_which_a_bucket_is_unknown_is_left_out_whole() -> None:
    page = {
        'ttft_s{engine="0"}': HistogramReading((0.1, 1.0), (3, 1, 0)),
        'ttft_s{engine="1"}': HistogramReading((0.1, 1.0), (0, 0, 2)),
    }
    deltas: dict[str, int | None] = dict(bucket_values(page))
    deltas['ttft_s{engine="0"} le=1.0'] = None
    assert bucket_totals(page, deltas) == {("ttft_s", (0.1, 1.0)): (0, 0, 2)}
    deltas['ttft_s{engine="1"} le=inf'] = None
    assert bucket_totals(page, deltas) == {}


SERIES = ['tokens{engine="0"}', 'tokens{engine="1"}', 'tokens{engine="2"}']
moves = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.sampled_from(SERIES), st.integers(0, 50)),
        st.tuples(st.just("read")),
        st.tuples(st.just("hide"), st.sampled_from(SERIES)),
        st.just(("engine restarts",)),
        st.just(("agent restarts",)),
    ),
    max_size=40,
)


@given(moves=moves, start_visible=st.booleans(), started_before=st.booleans())
def test_totals_are_right_or_marked_incomplete_and_never_doubled(
    moves: list[tuple[object, ...]], start_visible: bool, started_before: bool
) -> None:
    now_ms = WATCHING_MS + 1000
    start_ms = WATCHING_MS - 1000 if started_before else now_ms
    watching_ms = WATCHING_MS
    engine: dict[str, int] = {}
    hidden: set[str] = set()
    states: dict[str, CounterState] = {}
    served = counted = 0
    not_ours: int | None = None
    complete = True
    for ts, move in enumerate([*moves, ("read",)]):
        now_ms += 1000
        match move:
            case ("work", str(series), int(amount)):
                engine[series] = engine.get(series, 0) + amount
                served += amount
            case ("hide", str(series)) if series in states:
                hidden.add(series)
            case ("engine restarts",):
                engine, start_ms = {}, now_ms
            case ("agent restarts",):
                watching_ms = now_ms
            case ("read",):
                page = {name: value for name, value in engine.items() if ts == len(moves) or name not in hidden}
                hidden = set()
                if not page:
                    continue
                taken = advance(
                    states,
                    page,
                    owner_id=OWNER,
                    life=life(start_ms) if start_visible else None,
                    ts=ts,
                    from_zero=start_visible and start_ms >= watching_ms,
                    elapsed_s=1,
                )
                increases = [delta for delta in taken.deltas.values() if delta is not None]
                assert all(increase >= 0 for increase in increases)
                if not_ours is None:
                    not_ours = 0 if increases else served
                    lost_before = served - not_ours - sum(increases)
                    served -= lost_before  # lives that ended before the first page: nobody knew the engine
                states, counted = taken.states, counted + sum(increases)
                complete = complete and taken.complete
    ours = served - (not_ours or 0) if not_ours is not None else 0
    assert counted <= ours
    if complete and start_visible and not_ours is not None and engine:
        assert counted == ours
