"""The start of a process is the same number for every reader, whenever and wherever it is read."""

import os
import subprocess
import sys

import pytest

from pertoken.agent.host.processes import pod_namespace, since_boot_ms, start_ms

_READ = "import sys; from pertoken.agent.host.processes import start_ms; print(start_ms(int(sys.argv[1])))"


def test_another_program_reads_the_same_start_by_another_wall_clock() -> None:
    code = f"import time; time.time = lambda: 12345.0; {_READ}"
    done = subprocess.run([sys.executable, "-c", code, str(os.getpid())], capture_output=True, text=True, check=True)
    assert int(done.stdout) == start_ms(os.getpid())


def test_a_program_in_another_time_namespace_reads_the_same_start() -> None:
    unshare = ["unshare", "--time", "--boottime", "100000", "--fork"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no time namespace can be made here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", _READ, str(os.getpid())], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == start_ms(os.getpid())


def test_a_process_started_now_began_within_the_time_since_boot() -> None:
    before = since_boot_ms()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began = start_ms(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert began is not None
    assert before - 10 <= began <= since_boot_ms()


def test_the_namespace_of_a_process_in_no_pod_is_not_known() -> None:
    assert pod_namespace(os.getpid()) is None
    assert pod_namespace(2**22) is None
