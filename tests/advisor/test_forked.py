"""A fork shares a computation: its result is used, and where there is none the work is done here."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pertoken.advisor.forked import Forked, can_fork


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_result_of_a_fork_is_used_and_nothing_of_it_is_left() -> None:
    this_pid, beats = os.getpid(), []

    def work(report: Callable[[int], None]) -> tuple[int, bytes]:
        report(7)
        return os.getpid(), b"x" * 3_000_000

    with Forked(work) as other:
        pid, data = other.result(lambda: beats.append(other.done), 0.01)
        assert other.done == 7
    assert pid != this_pid and len(data) == 3_000_000 and beats
    assert ended(pid)


@pytest.mark.parametrize(
    "arrays", [(), (np.empty((0, 3)),), (np.arange(6).reshape(2, 3).T, np.ones(70_000), np.empty(0))]
)
def test_arrays_come_back_with_their_shape_and_order_and_may_be_changed(arrays: tuple[Any, ...]) -> None:
    with Forked(lambda report: {"arrays": arrays, "name": "w"}) as other:
        result = other.result(lambda: None, 0.01)
    assert result["name"] == "w" and len(result["arrays"]) == len(arrays)
    for sent, received in zip(arrays, result["arrays"], strict=True):
        assert (received.shape, received.dtype) == (sent.shape, sent.dtype)
        assert received.flags.f_contiguous == sent.flags.f_contiguous
        assert (received == sent).all()
        received[:] = 7
        assert (received == 7).all()


@pytest.mark.parametrize("fails", [lambda: 1 / 0, lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_where_a_fork_ends_without_a_result_the_work_is_done_here(fails: Callable[[], object]) -> None:
    this_pid = os.getpid()

    def work(report: Callable[[int], None]) -> int:
        if os.getpid() != this_pid:
            fails()
        return os.getpid()

    with Forked(work) as other:
        assert other.result(lambda: None, 0.01) == this_pid


def test_an_error_on_both_sides_is_raised_in_the_parent() -> None:
    def work(report: Callable[[int], None]) -> int:
        raise ValueError("on both sides")

    with Forked(work) as other, pytest.raises(ValueError, match="on both sides"):
        other.result(lambda: None, 0.01)


def test_a_fork_ends_with_its_context() -> None:
    reader, writer = os.pipe()

    def work(report: Callable[[int], None]) -> None:
        os.write(writer, str(os.getpid()).encode())
        signal.pause()

    with pytest.raises(KeyboardInterrupt), Forked(work):
        pid = int(os.read(reader, 20))
        raise KeyboardInterrupt
    os.close(reader)
    os.close(writer)
    assert ended(pid)


def test_a_process_with_threads_does_not_fork() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    assert not can_fork()
    go.set()
    thread.join()
