import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pertoken.agent.host.processes import has_ended, start_ms


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
        started_ms = start_ms(child.pid)
        assert not has_ended(child.pid, started_ms)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(child.pid, started_ms)
        child.wait()
        assert has_ended(child.pid, started_ms)


def test_a_process_that_was_given_the_pid_of_another_is_not_that_one() -> None:
    with waiting() as child:
        started_ms = start_ms(child.pid)
        assert started_ms is not None
        assert has_ended(child.pid, started_ms - 1)
