import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pertoken.agent.host.processes import ProcessLife, start_ms


@contextmanager
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that ends with its input."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_process_has_ended_once_it_has_and_not_before() -> None:
    with waiting() as child:
        life = ProcessLife(child.pid, start_ms(child.pid))
        assert not life.ended()
        child.kill()
        child.wait()
        assert life.ended()


def test_a_process_that_was_given_the_pid_of_another_is_not_that_one() -> None:
    with waiting() as child:
        started_ms = start_ms(child.pid)
        assert started_ms is not None
        assert ProcessLife(child.pid, started_ms - 1).ended()


def test_a_kernel_that_opens_no_process_is_asked_for_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError

    monkeypatch.setattr("os.pidfd_open", refuse)
    with waiting() as child:
        life = ProcessLife(child.pid, start_ms(child.pid))
        assert not life.ended()
        child.kill()
        child.wait()
        assert life.ended()
