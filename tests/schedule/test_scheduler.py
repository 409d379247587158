"""The scheduler by clocks that a test sets."""

import threading
from itertools import pairwise
from typing import Any

import pytest

from pertoken.errors import CorruptStore, StoreError
from pertoken.schedule.jobs import Job
from tests.recorded import DEADLINE_S, until
from tests.schedule.schedules import Clock, scheduled


def counted(name: str, every_s: float, **options: Any) -> tuple[Job, list[int]]:
    runs: list[int] = []
    return Job(name, lambda: runs.append(1), every_s, **options), runs


@pytest.mark.parametrize("step_s", [86_400, -86_400, -20])
def test_a_step_of_the_wall_clock_neither_stalls_jobs_nor_floods_them(step_s: float) -> None:
    clock = Clock()
    job, runs = counted("often", 10, first_s=10)
    runs_at_s: list[int] = []
    with scheduled([job], clock) as pending:
        for second in range(1, 121):
            if second == 55:
                clock.wall_ahead_s += step_s
            clock.now_s += 1
            pending.run()
            pending.scheduler.follow_clock()
            runs_at_s += [second] * (len(runs) - len(runs_at_s))
    waits_s = [after - before for before, after in pairwise(runs_at_s)]
    assert sum(wait != 10 for wait in waits_s) <= 2
    assert max(waits_s) < 20


def test_runs_that_were_missed_are_one_run() -> None:
    clock = Clock()
    job, runs = counted("often", 10)
    with scheduled([job], clock) as pending:
        pending.run()
        clock.now_s += 3600
        pending.run()
        assert len(runs) == 2


def test_a_job_that_waits_for_the_tick_thread_is_not_handed_over_again() -> None:
    clock = Clock()
    job, runs = counted("often", 10)
    with scheduled([job], clock) as pending:
        for _ in range(5):
            clock.now_s += 10
            pending.settle()
        pending.run()
        assert len(runs) == 1


def test_slow_work_runs_beside_the_thread_that_ticks() -> None:
    job, runs = counted("long", 10, beside=True)
    with scheduled([job], Clock()):
        until(lambda: len(runs) == 1, "the job")


def test_a_changed_period_counts_from_now_and_a_job_that_is_left_out_runs_no_more() -> None:
    clock = Clock()
    (kept, kept_runs), (gone, gone_runs) = counted("kept", 10, first_s=10), counted("gone", 10, first_s=10)
    with scheduled([kept, gone], clock) as pending:
        clock.now_s += 5
        pending.scheduler.set([Job("kept", kept.work, 30, 30)])
        for expected in (0, 1):
            clock.now_s += 29
            pending.run()
            assert (len(kept_runs), len(gone_runs)) == (expected, 0)


def test_the_state_of_a_job_names_its_last_run_the_next_and_why_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    faults: list[Exception] = [StoreError("no room"), StoreError("no room")]

    def work() -> None:
        clock.now_s += 2
        if faults:
            raise faults.pop()

    with scheduled([Job("work", work, 10, 5)], clock) as pending:
        (state,) = pending.scheduler.states()
        assert state.last_ts is None
        assert state.next_ts == pytest.approx(1_000_105)
        for n in range(2):
            clock.now_s = 105 + 10 * n
            pending.run()
            (state,) = pending.scheduler.states()
            assert state.last_ts == pytest.approx(1_000_105 + 10 * n)
            assert (state.took_s, state.error) == (2, "no room")
        assert caplog.messages == ["work: no room"]
        clock.now_s = 125
        pending.run()
        assert pending.scheduler.states()[0].error is None


def test_damage_found_by_a_job_is_raised_in_the_thread_that_ticks() -> None:
    def damaged() -> None:
        raise CorruptStore("a page is damaged")

    with (
        scheduled([Job("check", damaged, 10)], Clock()) as pending,
        pytest.raises(CorruptStore, match="a page is damaged"),
    ):
        pending.run()


def test_a_job_that_ends_while_the_scheduler_stops_holds_up_nothing() -> None:
    clock = Clock()
    began = threading.Event()

    def work() -> None:
        began.set()
        until(lambda: not pending.scheduler._scheduler.running, "the end")

    with scheduled([Job("check", work, 10, beside=True)], clock) as pending:
        assert began.wait(DEADLINE_S)
        stopping = threading.Thread(target=pending.scheduler.stop, daemon=True)
        stopping.start()
        stopping.join(5)
        assert not stopping.is_alive()


def test_a_job_that_takes_long_holds_up_no_other_beside_it() -> None:
    release = threading.Event()
    quick, runs = counted("quick", 10, beside=True)
    with scheduled([Job("long", lambda: _wait(release), 10, beside=True), quick], Clock()):
        try:
            until(lambda: len(runs) == 1, "the quick job", within_s=10)
        finally:
            release.set()


def _wait(event: threading.Event) -> None:
    event.wait()


def test_a_job_with_retries_runs_again_after_a_wait_that_doubles_with_each_failure_and_then_at_its_period() -> None:
    clock = Clock()
    faults: list[Exception] = [StoreError("away") for _ in range(4)]
    runs: list[float] = []

    def work() -> None:
        runs.append(clock.now_s)
        if faults:
            raise faults.pop()

    with scheduled([Job("ship", work, 60, retry_s=(1, 5))], clock) as pending:
        for _ in range(6):
            (state,) = pending.scheduler.states()
            clock.now_s = max(clock.now_s, state.next_ts - 1_000_000)
            pending.run()
    assert pending.bounds == [1, 2, 4, 5]
    assert [round(run - runs[0]) for run in runs] == [0, 1, 3, 7, 12, 72]
