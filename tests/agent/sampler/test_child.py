"""The sampler as a process: light, alone with its output, ended with its input."""

import subprocess
import sys

from pertoken.agent.sampler.client import Sampler
from pertoken.agent.sampler.wire import decode
from tests.agent.sampler.processes import NOTHING, PATIENCE_S, process_of
from tests.standin_nvml import Machine, eight, environment

HEAVY = {"sqlalchemy", "textual", "alembic", "http.client", "apscheduler", "click", "numpy", "amdsmi", "platformdirs"}


def test_the_sampler_imports_nothing_heavy() -> None:
    program = f"import sys, pertoken.agent.sampler.child; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_output_of_libraries_does_not_reach_the_protocol() -> None:
    requests = '{"processes": false}\n{"processes": true}\n'
    done = subprocess.run(
        [sys.executable, "-m", "pertoken.agent.sampler.child"],
        env=environment(Machine(gpus=eight(), noisy=True)),
        input=requests,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0
    assert [len(decode(line).devices) for line in done.stdout.splitlines()] == [8, 8]
    assert "hello from C" in done.stderr and "hello from Python" in done.stderr


def test_end_of_file_ends_it_and_a_polite_kill_does_not() -> None:
    child = Sampler(environment(NOTHING))
    child.read(processes=False, deadline_s=PATIENCE_S)
    process = process_of(child)
    process.terminate()
    unavailable = child.read(processes=False, deadline_s=PATIENCE_S).unavailable
    assert "sampler" not in {missing.metric for missing in unavailable}
    assert process.is_running()
    child.close(PATIENCE_S)
    assert child.pid is None and not process.is_running()
