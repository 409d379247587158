"""Threads for calls that may hang."""

import threading

import pytest

from pertoken.agent.workers import Workers
from tests.recorded import DEADLINE_S, until


def test_a_call_runs_at_once_while_others_hang_and_fewer_than_all_threads_are_busy() -> None:
    workers, release, done = Workers(2, "test"), threading.Event(), threading.Event()
    workers.submit(release.wait)  # type: ignore[arg-type]
    workers.submit(done.set)
    assert done.wait(DEADLINE_S)
    release.set()
    workers.close()


def test_a_call_waits_while_all_threads_are_busy() -> None:
    workers, release, done = Workers(1, "test"), threading.Event(), threading.Event()
    workers.submit(release.wait)  # type: ignore[arg-type]
    workers.submit(done.set)
    assert not done.is_set()
    release.set()
    assert done.wait(DEADLINE_S)
    workers.close()


def test_a_call_that_fails_is_logged_and_its_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    workers, done = Workers(1, "test"), threading.Event()
    workers.submit(lambda: 1 // 0)  # type: ignore[arg-type]
    workers.submit(done.set)
    assert done.wait(DEADLINE_S)
    assert caplog.messages == ["a call of test failed"]
    workers.close()


def test_after_the_end_no_call_begins() -> None:
    workers, release = Workers(1, "test"), threading.Event()
    runs: list[int] = []
    workers.submit(release.wait)  # type: ignore[arg-type]
    workers.submit(lambda: runs.append(1))
    workers.close()
    workers.submit(lambda: runs.append(2))
    release.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "test-1"], "the thread's end")
    assert runs == []
