"""Forks share a computation: their results are used, and where there is none the work is done here."""

import os
import resource
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pertoken.advisor import run
from pertoken.advisor.run import Fork, in_forks, processors
from pertoken.window.figures import Progress, no_progress


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_each_work_has_a_fork_whose_result_is_used_and_nothing_of_it_is_left() -> None:
    def work(progress: Progress, *, size: int) -> tuple[int, bytes]:
        return os.getpid(), b"x" * size

    results = in_forks([partial(work, size=3_000_000), partial(work, size=5)], no_progress)
    pids = {pid for pid, _ in results}
    assert [len(data) for _, data in results] == [3_000_000, 5]
    assert len(pids) == 2 and os.getpid() not in pids and all(map(ended, pids))


def test_a_single_work_has_a_fork_too() -> None:
    (pid,) = in_forks([lambda progress: os.getpid()], no_progress)
    assert pid != os.getpid() and ended(pid)


def test_a_process_with_more_than_1024_open_files_waits_for_its_fork() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        (pid,) = in_forks([lambda progress: os.getpid()], no_progress)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert pid != os.getpid() and ended(pid)


def test_the_progress_of_a_fork_is_seen_by_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "TICK_S", 0.01)
    reader, writer = os.pipe()

    def work(progress: Progress) -> str:
        progress("pricing", 0.5)
        os.read(reader, 1)
        return "done"

    seen: list[tuple[str, float]] = []

    def show(phase: str, share: float) -> None:
        seen.append((phase, share))
        os.write(writer, b".")

    with Fork(work) as fork:
        assert fork.result(show) == "done"
    os.close(reader)
    os.close(writer)
    assert set(seen) == {("pricing", 0.5)}


@pytest.mark.parametrize("fails", [lambda: 1 / 0, lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_where_a_fork_ends_without_a_result_the_work_is_done_here(fails: Callable[[], object]) -> None:
    this_pid = os.getpid()

    def work(progress: Progress) -> int:
        if os.getpid() != this_pid:
            fails()
        return os.getpid()

    assert in_forks([work, work], no_progress) == [this_pid, this_pid]


def test_an_error_on_both_sides_is_raised_in_the_parent() -> None:
    def work(progress: Progress) -> Any:
        raise ValueError("on both sides")

    with pytest.raises(ValueError, match="on both sides"):
        in_forks([work, work], no_progress)


def test_a_fork_ends_with_its_context() -> None:
    reader, writer = os.pipe()

    def work(progress: Progress) -> None:
        os.write(writer, str(os.getpid()).encode())
        signal.pause()

    with pytest.raises(KeyboardInterrupt), Fork(work):
        pid = int(os.read(reader, 20))
        raise KeyboardInterrupt
    os.close(reader)
    os.close(writer)
    assert ended(pid)


def test_a_process_with_threads_counts_as_one_processor() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    assert processors() == 1
    go.set()
    thread.join()
