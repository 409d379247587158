"""Busy time: what an engine's own counters report, never more than it can have worked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import floor
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pertoken.agent.readings import EngineReading
from pertoken.agent.rows.tick_state import WorkInterval, busy
from pertoken.provenance import Provenance
from tests.agent.rows.busy.agent import Agent
from tests.agent.values import ENDPOINT, engine


def test_busy_time_of_an_unobserved_interval_is_left_out_in_proportion() -> None:
    agent = Agent()
    for n, step_ms in ((0, 10_000), (1, 10_000), (2, 100_000)):
        agent.tick(engine(n, counters={"engine_ms": 50_000 * n, "generated_tokens": n}, knobs={}), step_ms=step_ms)
    row = agent.rows[-1]
    assert (row.duration_ms, row.observed_ms, row.busy_ms) == (100_000, 20_000, 20_000)
    agent = Agent()
    for n, step_ms in ((0, 10_000), (1, 10_000), (2, 100_000)):
        counters = {"engine_ms": 1_000 * n, "generated_tokens": n}
        agent.tick(engine(n, counters=counters, gauges={"running": 0.0}, knobs={}), step_ms=step_ms)
    assert [row.busy_ms for row in agent.rows] == [1000, 200]


def test_a_page_that_fails_meanwhile_moves_no_work_into_observed_time() -> None:
    def at(worked_ms: int, **more: Any) -> EngineReading:
        return engine(1, counters={"engine_ms": worked_ms}, gauges={"running": 1.0}, knobs={}, **more)

    failed = at(0, fault="closed", fault_kind="closed")
    agent = Agent()
    for reading in (at(0), at(5_000), failed, failed, failed, at(25_000), at(26_000)):
        agent.tick(reading)
    # 20 s of work over 40 s, of which the last 10 s are observed.
    assert [row.busy_ms for row in agent.rows] == [5_000, None, None, None, 5_000, 1_000]


def test_a_restarted_engine_owes_nothing_of_its_life_before() -> None:
    def at(worked_ms: int, running: float, started_ms: int) -> EngineReading:
        endpoint = replace(ENDPOINT, process_start_ms=started_ms)
        counters = {"engine_ms": worked_ms, "generated_tokens": worked_ms}
        return engine(1, endpoint=endpoint, counters=counters, gauges={"running": running}, knobs={})

    agent = Agent()
    for reading in (
        at(0, 0, -5_000),
        at(0, 1, -5_000),
        at(16_000, 1, -5_000),
        at(1_000, 0, 21_000),
        at(1_000, 0, 21_000),
    ):
        agent.tick(reading)
    assert [row.busy_ms for row in agent.rows] == [0, 10_000, 1_000, 0]


def test_a_counter_that_moves_in_large_steps_is_reported_in_full() -> None:
    # llama.cpp prints six digits: from 10^6 s on its counters move by 10 s.
    agent, printed = Agent(), 1_000_000_000
    alone = {"running": 0.0, "requests_per_step": 1.0}
    for n in range(101):
        counters = {"prefill_ms": 0, "decode_ms": (printed + 200 * n) // 10_000 * 10_000, "generated_tokens": 10 * n}
        agent.tick(engine(1, counters=counters, gauges=alone), step_ms=1_000)
    for _ in range(30):
        agent.tick(engine(1, counters=counters, gauges=alone), step_ms=1_000)
    assert agent.busy_ms == 20_000
    assert max(row.busy_ms or 0 for row in agent.rows) <= 1_000


@dataclass(frozen=True)
class Request:
    """Work from `start_ms` to `end_ms`, counted at its end."""

    start_ms: int
    end_ms: int


def apart(pauses_and_lengths: Sequence[tuple[int, int]]) -> list[Request]:
    """Return requests one after the other."""
    requests, now = [], 0
    for pause, length in pauses_and_lengths:
        requests.append(Request(now + pause, now + pause + length))
        now += pause + length
    return requests


def readings(requests: Sequence[Request], ticks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (length of the tick, work counted in it, requests running at its end)."""
    start = 0
    for ms in ticks:
        end = start + ms
        counted = sum(request.end_ms - request.start_ms for request in requests if start < request.end_ms <= end)
        yield ms, counted, sum(request.start_ms < end < request.end_ms for request in requests)
        start = end


def reported(requests: Sequence[Request], ticks: Sequence[int], *, exact: bool) -> list[int]:
    """Return busy time of each tick, and of as many idle ones as it takes to report all that is owed."""
    work_interval, reports = WorkInterval(), []
    last = max((request.end_ms for request in requests), default=0)
    rest = [1_000] * (2 + 2 * max(0, last - sum(ticks)) // 1_000 + sum(ticks) // 1_000 + 1)
    for ms, counted, running in readings(requests, [*ticks, *rest]):
        got = busy(
            work_interval,
            {"prefill_ms": 0, "decode_ms": counted, "generated_tokens": None},
            observed_ms=ms,
            elapsed_ms=ms,
            running=running,
            waiting=0,
            exact=exact,
        )
        assert got.ms is not None and 0 <= got.ms <= ms
        assert (got.provenance is Provenance.COUNTER) if exact or not got.ms else True
        work_interval = got.work_interval
        reports.append(got.ms)
    return reports


work = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 30_000)), max_size=12)
lengths = st.lists(st.integers(1, 12_000), min_size=1, max_size=30)


@given(work, lengths)
def test_requests_one_after_the_other_are_reported_to_the_millisecond(
    pauses_and_lengths: list[tuple[int, int]], ticks: list[int]
) -> None:
    requests = apart(pauses_and_lengths)
    assert sum(reported(requests, ticks, exact=True)) == sum(request.end_ms - request.start_ms for request in requests)


@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 20_000)), max_size=12), lengths)
@example([(0, 20_000)] * 8, [5_000] * 4)
def test_requests_that_overlap_are_bounded_by_their_sum_and_by_the_time_there_was(
    starts_and_lengths: list[tuple[int, int]], ticks: list[int]
) -> None:
    requests = [Request(start, start + length) for start, length in starts_and_lengths]
    union = {ms for request in requests for ms in range(request.start_ms, request.end_ms)}
    reports = reported(requests, ticks, exact=False)
    ends = list(accumulate([*ticks, *[1_000] * (len(reports) - len(ticks))]))
    possible_ms = sum(
        end - start
        for start, end in pairwise([0, *ends])
        if any(request.start_ms < end and request.end_ms > start for request in requests)
    )
    max_ms = min(possible_ms, sum(request.end_ms - request.start_ms for request in requests))
    assert len(union) <= sum(reports) <= max_ms


delta = st.none() | st.integers(0, 10**6)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20_000),
            st.integers(0, 5_000),
            st.fixed_dictionaries(
                dict.fromkeys(
                    ("engine_ms", "prefill_ms", "decode_ms", "steps", "generated_tokens", "spec_accepted_tokens"), delta
                )
            ),
            st.none() | st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_whatever_an_engine_counts_it_is_never_busy_for_longer_than_it_was_observed(
    history: list[tuple[int, int, dict[str, int | None], int | None]],
) -> None:
    work_interval, total, observed, counted = WorkInterval(), 0, 0, 0.0
    for ms, unseen_ms, deltas, running in history:
        got = busy(
            work_interval, deltas, observed_ms=ms, elapsed_ms=ms + unseen_ms, running=running, waiting=None, exact=False
        )
        assert got.ms is None or 0 <= got.ms <= ms
        work_interval, total, observed = got.work_interval, total + (got.ms or 0), observed + ms
        counted += sum(deltas[word] or 0 for word in ("engine_ms", "prefill_ms", "decode_ms"))
        assert total <= observed
        assert total <= floor(counted)


def split_of(work_interval: WorkInterval, **counts: int) -> tuple[int | None, int | None, int | None]:
    deltas: dict[str, int | None] = {"prefill_ms": None, "decode_ms": None, **counts}
    got = busy(work_interval, deltas, observed_ms=10_000, elapsed_ms=10_000, running=1, waiting=0, exact=True)
    return got.ms, got.prefill_ms, got.decode_ms


def test_busy_time_of_one_request_at_a_time_is_split_as_its_engine_counts_it() -> None:
    assert split_of(WorkInterval(), prefill_ms=2_000, decode_ms=6_000, generated_tokens=10) == (8_000, 2_000, 6_000)


def test_decode_time_of_requests_in_one_batch_counts_once_for_each_step() -> None:
    counts = {"prefill_ms": 1_000, "decode_ms": 40_000, "generated_tokens": 800, "steps": 100}
    assert split_of(WorkInterval(), **counts) == (6_000, 1_000, 5_000)


def test_kinds_that_overlap_are_each_at_most_the_busy_time() -> None:
    counts = {"prefill_ms": 9_000, "decode_ms": 40_000, "generated_tokens": 800}
    assert split_of(WorkInterval(), **counts) == (10_000, 9_000, 10_000)


def test_time_of_an_engine_beyond_prefill_and_decode_is_of_neither() -> None:
    counts = {"engine_ms": 8_000, "prefill_ms": 2_000, "decode_ms": 5_000, "generated_tokens": 10}
    assert split_of(WorkInterval(), **counts) == (8_000, 2_000, 5_000)


def test_an_engine_that_counts_no_prefill_or_no_decode_is_not_split() -> None:
    assert split_of(WorkInterval(), engine_ms=8_000, generated_tokens=10) == (8_000, None, None)
    assert split_of(WorkInterval(), engine_ms=8_000, decode_ms=8_000, generated_tokens=10) == (8_000, None, None)


@given(work, lengths, st.integers(0, 100))
def test_kinds_of_late_counts_add_up_to_the_busy_time(
    pauses_and_lengths: list[tuple[int, int]], ticks: list[int], percent: int
) -> None:
    requests, work_interval, totals = apart(pauses_and_lengths), WorkInterval(), [0, 0, 0]
    last = max((request.end_ms for request in requests), default=0)
    prefills = decodes = 0
    for ms, counted, running in readings(requests, [*ticks, *[1_000] * (2 * last // 1_000 + 2)]):
        prefill = counted * percent // 100
        prefills, decodes = prefills + prefill, decodes + counted - prefill
        deltas = {"prefill_ms": prefill, "decode_ms": counted - prefill, "generated_tokens": None}
        got = busy(work_interval, deltas, observed_ms=ms, elapsed_ms=ms, running=running, waiting=0, exact=True)
        assert got.ms is not None and got.prefill_ms is not None and got.decode_ms is not None
        assert 0 <= got.prefill_ms <= got.ms and 0 <= got.decode_ms <= got.ms
        totals = [a + b for a, b in zip(totals, (got.ms, got.prefill_ms, got.decode_ms), strict=True)]
        work_interval = got.work_interval
    rounding_ms = 2 * len(ticks) + 2 * last // 1_000 + 4
    assert totals[0] == prefills + decodes
    assert abs(totals[1] - prefills) <= rounding_ms and abs(totals[2] - decodes) <= rounding_ms
    assert totals[1] + totals[2] >= totals[0] - len(ticks) - 2 * last // 1_000 - 2
