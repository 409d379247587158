from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.counters import Advance, advance, bucket_totals, bucket_values, word_totals
from pertoken.agent.readings import HistogramReading
from pertoken.store.rows import CounterState

OWNER = 7
WATCHING_MS = 1_000_000


def step(
    states: dict[str, CounterState], values: dict[str, int], start_ms: int | None = WATCHING_MS + 5, ts: int = 2000
) -> Advance:
    return advance(states, values, owner_id=OWNER, process_start_ms=start_ms, ts=ts, watching_since_ms=WATCHING_MS)


def test_a_process_that_started_while_watched_counts_from_zero() -> None:
    first = step({}, {"prompt_tokens": 10})
    assert first.deltas == {"prompt_tokens": 10}
    assert first.complete
    assert first.states["prompt_tokens"] == CounterState(OWNER, "prompt_tokens", 10, WATCHING_MS + 5, 2000)


def test_what_was_counted_before_anybody_watched_is_not_ours() -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=WATCHING_MS - 60_000)
    assert first.deltas == {"prompt_tokens": None}
    assert first.complete
    assert step(first.states, {"prompt_tokens": 13}, start_ms=WATCHING_MS - 60_000).deltas == {"prompt_tokens": 3}


def test_a_first_page_of_a_process_whose_start_cannot_be_seen_is_only_remembered() -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=None)
    assert first.deltas == {"prompt_tokens": None}
    assert step(first.states, {"prompt_tokens": 13}, start_ms=None).deltas == {"prompt_tokens": 3}


def test_an_agent_restarted_beside_the_same_process_goes_on_from_its_stored_state() -> None:
    stored = step({}, {"prompt_tokens": 10}, start_ms=WATCHING_MS + 5).states
    later = advance(
        stored,
        {"prompt_tokens": 25},
        owner_id=OWNER,
        process_start_ms=WATCHING_MS + 5,
        ts=3000,
        watching_since_ms=WATCHING_MS + 900_000,
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
    assert second.reset is not None and "restarted" in second.reset
    assert second.forgotten == ("old",)
    assert "old" not in second.states
    third = step(second.states, {"prompt_tokens": 41, "old": 1}, start_ms=WATCHING_MS + 90_000)
    assert third.deltas == {"prompt_tokens": 1, "old": 1}
    assert third.complete


def test_a_start_told_with_another_rounding_is_the_same_start() -> None:
    first = step({}, {"prompt_tokens": 10}, start_ms=WATCHING_MS + 5000)
    second = step(first.states, {"prompt_tokens": 12}, start_ms=WATCHING_MS + 5010)
    assert second.deltas == {"prompt_tokens": 2}
    assert second.complete


def test_a_counter_that_falls_within_one_process_was_reset_alone() -> None:
    first = step({}, {"prompt_tokens": 10, "generated_tokens": 5})
    second = step(first.states, {"prompt_tokens": 4, "generated_tokens": 6})
    assert second.deltas == {"prompt_tokens": 4, "generated_tokens": 1}
    assert not second.complete
    assert second.reset is not None and "prompt_tokens fell from 10 to 4" in second.reset


def test_a_fall_is_all_that_tells_a_restart_where_the_start_cannot_be_seen() -> None:
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


SERIES = ['tokens{engine="0"}', 'tokens{engine="1"}', 'tokens{engine="2"}']
moves = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.sampled_from(SERIES), st.integers(0, 50)),
        st.tuples(st.just("read"), st.sampled_from([0, 10])),
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
    for ts, move in enumerate([*moves, ("read", 0)]):
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
            case ("read", int(rounding)):
                page = {name: value for name, value in engine.items() if ts == len(moves) or name not in hidden}
                hidden = set()
                if not page:
                    continue
                taken = advance(
                    states,
                    page,
                    owner_id=OWNER,
                    process_start_ms=start_ms + rounding if start_visible else None,
                    ts=ts,
                    watching_since_ms=watching_ms,
                )
                grown = [delta for delta in taken.deltas.values() if delta is not None]
                assert all(delta >= 0 for delta in grown)
                if not_ours is None:
                    not_ours = 0 if grown else served
                    lost_before = served - not_ours - sum(grown)
                    served -= lost_before  # lives that ended before the first page: nobody knew the engine
                states, counted = taken.states, counted + sum(grown)
                complete = complete and taken.complete
    ours = served - (not_ours or 0) if not_ours is not None else 0
    assert counted <= ours
    if complete and start_visible and not_ours is not None and engine:
        assert counted == ours
