"""Counts of one engine between two pages, by hand."""

from dataclasses import replace

import pytest

from pertoken.agent.readings import EngineReading, Unavailable
from pertoken.agent.rows.assemble import Readings
from tests.agent.rows.ticks import counted, elsewhere, run, served, shares
from tests.agent.values import ENDPOINT, START_MS, engine, probe


def test_counts_of_an_engine_from_before_it_was_watched_are_left_out() -> None:
    before, after = (
        replace(reading, counters={**reading.counters, "prefill_ms": prefill_ms, "decode_ms": decode_ms})
        for reading, prefill_ms, decode_ms in ((engine(500, 40), 900, 70_000), (engine(530, 60), 1_000, 74_000))
    )
    _, tick = run(Readings(probe(), (before,)), Readings(probe(), (after,)))
    (row,) = served(tick)
    assert (row.generated_tokens, row.computed_tokens, row.prompt_tokens) == (30, 20, 20)
    assert (row.complete, row.duration_ms, row.observed_ms, row.busy_ms) == (True, 10_000, 10_000, 4_100)


def test_other_counters_are_separate_rows_and_requests_are_split_by_how_they_ended() -> None:
    def counters(drafts: int, stopped: int, aborted: int) -> dict[str, int]:
        return {
            "generated_tokens": 500,
            "spec_drafts": drafts,
            "prefix_hits": 7,
            'requests_finished{engine="0",reason="stop"}': stopped,
            'requests_finished{engine="1",reason="stop"}': stopped,
            'requests_finished{engine="0",reason="length"}': 4,
            'requests_failed{reason="aborted"}': aborted,
        }

    before, after = (engine(0, counters=counts) for counts in (counters(10, 5, 1), counters(12, 6, 2)))
    _, tick = run(Readings(probe(), (before,)), Readings(probe(), (after,)))
    assert counted(tick) == {
        "spec_drafts": 2,
        "requests_failed": 1,
        'requests_finished{reason="stop"}': 2,
        'requests_failed{reason="aborted"}': 1,
    }
    assert served(tick)[0].requests_finished == 2


def test_a_counter_that_falls_in_a_living_process_is_unknown_and_an_event_and_no_restart() -> None:
    _, fallen, after = run(*(Readings(probe(), (engine(count),)) for count in (999_999, 999_998, 1_000_001)))
    (row,) = served(fallen)
    assert (row.generated_tokens, row.complete, row.duration_ms) == (None, False, 10_000)
    assert [event.kind for event in fallen.events] == ["engine_counter"]
    (row,) = served(after)
    assert (row.generated_tokens, row.complete) == (2, False)  # what is beyond the value it fell from


def test_a_counter_that_jumps_beyond_what_a_server_counts_is_unknown_and_an_event() -> None:
    _, jumped, after = run(*(Readings(probe(), (engine(count),)) for count in (10, 10**18, 10**18 + 3)))
    (row,) = served(jumped)
    assert (row.generated_tokens, row.complete) == (None, False)
    assert [event.kind for event in jumped.events] == ["engine_counter"]
    assert [(row.generated_tokens, row.complete) for row in served(after)] == [(3, True)]


def test_time_asleep_is_counted_as_time() -> None:
    asleep = engine(500, gauges={"running": 0.0, "awake": 0.0})
    _, tick = run(Readings(probe(), (engine(500),)), Readings(probe(), (asleep,)))
    assert counted(tick) == {"asleep_ms": 10_000}


def test_an_engine_without_counters_has_unknown_tokens_and_a_remedy() -> None:
    missing = Unavailable("tokens", "missing", "it counts none", "serve it with another engine")
    silent = engine(0, counters={}, gauges={}, unavailable=(missing,))
    _, tick = run(Readings(probe(), (silent,)), Readings(probe(), (silent,)))
    (row,) = served(tick)
    assert (row.prompt_tokens, row.generated_tokens, row.busy_ms) == (None, None, None)
    assert (row.observed_ms, row.complete) == (10_000, True)
    first, _ = run(Readings(probe(), (silent,)), Readings(probe(), (silent,)))
    assert [(capability.metric, capability.remedy) for capability in first.capabilities + tick.capabilities] == [
        ("tokens", "serve it with another engine")
    ]


def test_an_engine_that_started_after_we_did_counts_from_zero() -> None:
    young = replace(ENDPOINT, process_start_ms=START_MS + 3_000)
    _, tick = run(Readings(probe()), Readings(probe(), (engine(70, endpoint=young),)))
    assert served(tick)[0].generated_tokens == 70


def test_a_restart_counts_the_new_life_and_marks_the_row_incomplete() -> None:
    again = replace(ENDPOINT, pid=200, process_start_ms=START_MS + 14_000)
    _, _, tick = run(
        Readings(probe(), (engine(500),)),
        Readings(probe(), (engine(510),)),
        Readings(probe(), (engine(7, endpoint=again),)),
    )
    (row,) = served(tick)
    assert (row.generated_tokens, row.complete, row.duration_ms) == (7, False, 6_000)
    assert [event.kind for event in tick.events] == ["engine_restarted"]
    assert tick.epochs == ()


def test_a_page_that_fails_is_null_and_an_event_and_its_tokens_come_with_the_next_good_one() -> None:
    broken = EngineReading(ENDPOINT, fault="no answer", fault_kind="timeout", remedy="wait")
    _, bad, good = run(
        Readings(probe(), (engine(500),)), Readings(probe(), (broken,)), Readings(probe(), (engine(520),))
    )
    (row,) = served(bad)
    assert (row.generated_tokens, row.observed_ms, row.complete) == (None, 0, True)
    assert [event.kind for event in bad.events] == ["engine_timeout"]
    assert [(capability.metric, capability.status) for capability in bad.capabilities] == [("metrics_page", "failing")]
    assert served(good)[0].generated_tokens == 20
    assert [(capability.metric, capability.status) for capability in good.capabilities] == [("metrics_page", "ok")]


def test_an_engine_that_ends_leaves_an_incomplete_row() -> None:
    _, tick, after = run(Readings(probe(), (engine(500),)), Readings(probe()), Readings(probe()))
    (row,) = served(tick)
    assert (row.generated_tokens, row.complete) == (None, False)
    assert [event.kind for event in tick.events] == ["engine_stopped"]
    assert served(after) == [] and shares(after) == {}


def test_a_remote_restart_past_the_old_counts_is_detected_by_the_start_time_on_its_page() -> None:
    lives = START_MS - 10**6, START_MS + 15_000
    readings = [elsewhere(500, lives[0]), elsewhere(530, lives[0]), elsewhere(600, lives[1])]
    _, first, second = run(*(Readings(probe(), (reading,)) for reading in readings))
    assert [(row.generated_tokens, row.complete) for tick in (first, second) for row in served(tick)] == [
        (30, True),
        (600, False),
    ]


def test_a_server_behind_a_process_that_goes_on_is_counted_from_0_when_the_header_names_another() -> None:
    """As of a program that maps the library of llama.cpp and forwards to a server of its own."""
    pages = [(500, 1000), (530, 1000), (600, 9000), (640, 9000)]
    readings = [replace(engine(generated), life_ms=life_ms) for generated, life_ms in pages]
    assert readings[0].endpoint.certain and readings[0].endpoint.pid is not None
    _, *ticks = run(*(Readings(probe(), (reading,)) for reading in readings))
    assert [(row.generated_tokens, row.complete) for tick in ticks for row in served(tick)] == [
        (30, True),
        (600, False),
        (40, True),
    ]


def test_servers_that_answer_in_turn_behind_one_url_are_not_counted_rather_than_counted_too_often() -> None:
    older, newer = START_MS - 10**7, START_MS - 10**6
    readings = [elsewhere(1000 + 10 * n, older) if n % 2 else elsewhere(500 + 10 * n, newer) for n in range(6)]
    ticks = run(*(Readings(probe(), (reading,)) for reading in readings))
    rows = [row for tick in ticks for row in served(tick)]
    assert [(row.generated_tokens, row.complete) for row in rows] == [(None, False)] * 5
    assert all("answers in turn" in event.message for tick in ticks[1:] for event in tick.events)


@pytest.mark.parametrize(
    ("now", "complete"),
    [(10**9 + 600, True), (600, False), (500, True)],
    ids=["no server counts so much in that time", "it may have restarted", "nothing moved"],
)
def test_a_server_with_an_unknown_start_may_have_restarted_while_it_was_unseen(now: int, complete: bool) -> None:
    first = 10**9 if now > 10**9 else 500
    before, after = elsewhere(first, None), elsewhere(now, None)
    away = replace(before, fault="away", fault_kind="closed", counters={})
    *_, tick = run(*(Readings(probe(), (reading,)) for reading in (before, away, away, away, after)))
    row = served(tick)[-1]
    assert (row.generated_tokens, row.complete) == (now - first, complete)


def test_one_missed_page_is_no_reason_to_doubt() -> None:
    before, after = elsewhere(500, None), elsewhere(600, None)
    away = replace(before, fault="away", fault_kind="timeout", counters={})
    *_, tick = run(*(Readings(probe(), (reading,)) for reading in (before, away, after)))
    assert served(tick)[0].complete
