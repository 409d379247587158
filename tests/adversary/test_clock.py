"""The stepped clock: a child process follows it in all that it knows of the wall clock, and in nothing else."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.adversary.clock import COMPILER, SteppedClock

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
DAY_S = 86_400
_CHILD = """
import datetime, json, os, psutil, sqlite3, sys, time
for line in sys.stdin:
    sqlite = sqlite3.connect(":memory:").execute("SELECT unixepoch()").fetchone()[0]
    times = [time.time(), datetime.datetime.now().timestamp(), sqlite, psutil.boot_time(), time.monotonic()]
    print(json.dumps(times), flush=True)
"""


def test_a_child_follows_steps_of_the_wall_clock_at_once_and_keeps_its_monotonic_time(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment(),
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            for offset_s in (0.0, 1000.0 * DAY_S, -3.0 * DAY_S, -0.75, 0.0):
                clock.set(offset_s)
                print("", file=child.stdin, flush=True)
                wall_s, date_s, sqlite_s, boot_s, monotonic_s = json.loads(child.stdout.readline())
                now_s = time.time() + offset_s
                assert wall_s == pytest.approx(now_s, abs=5) and date_s == pytest.approx(now_s, abs=5)
                assert sqlite_s == pytest.approx(now_s, abs=6)
                assert boot_s == pytest.approx(psutil.boot_time() + offset_s, abs=2)
                assert monotonic_s == pytest.approx(time.monotonic(), abs=5)
        finally:
            child.stdin.close()
    assert child.returncode == 0
