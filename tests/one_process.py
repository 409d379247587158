"""Rules of an advice run in one process, for tests of anything but their isolation.

Each plugin and each rule has a fork of its own, 70 in a run of the built-in rules. A fork of a process that has loaded
all tests takes 30 ms of CPU, so that such a run took 2.5 s, and one in which they share a process takes 0.5 s.
"""

import gc
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import pytest

from pertoken.advisor.worker import child
from pertoken.advisor.worker import run as worker_run
from pertoken.advisor.worker.child import PIPE, RuleLimits, Task, send, trace


def share_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rules of a worker share its process, without the restrictions of the kernel."""
    monkeypatch.setattr(worker_run, "supervise", _supervise)


def _supervise(parent: int, tasks: Sequence[Task], limits: RuleLimits, folder: str, pipe: int, output: int) -> NoReturn:
    """Run the tasks as `child.supervise` does, one after the other."""
    try:
        child.end_with_parent(parent)
        child._default_signals()
        gc.freeze()
        child._keep_files(pipe, output)
        file = io.FileIO(1, "w", closefd=False)
        sys.stdout = sys.stderr = io.TextIOWrapper(file, "utf-8", "backslashreplace", write_through=True)
        child._fork, child._wait = _run_rule, _ended  # type: ignore[assignment]
        for task in tasks:
            send(PIPE, confined=[None, None, None])
            task(limits)
            send(PIPE, left=None, output=child._printed(limits))
    except BaseException as error:
        os.write(2, trace(error).encode())
        send(PIPE, left="ended its process", output=child._printed(limits))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _run_rule(run: Callable[[], None]) -> int:
    assert isinstance(run, partial) and run.func is child._rule
    run()
    return 0


def _ended(*_: Any) -> None:
    """Return that a rule did not fail: its errors are part of its messages."""
