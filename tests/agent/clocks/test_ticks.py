"""Time of the agent's first sample, and the rate at which it lists processes."""

import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pertoken.agent.clocks import process_list_s

DEADLINE_S = 40.0


def samples(folder: Path) -> int:
    with suppress(sqlite3.OperationalError):
        connection = sqlite3.connect(f"file:{folder}/telemetry.db?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT COUNT(*) FROM device_sample").fetchone()[0])
        finally:
            connection.close()
    return 0


def test_the_first_sample_does_not_wait_for_the_end_of_its_interval(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    command = [sys.executable, "-m", "pertoken", "agent", "--db", str(folder), "--interval", "60s"]
    agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not samples(folder):
            assert agent.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        agent.terminate()
        agent.wait(DEADLINE_S)


@pytest.mark.parametrize(("interval_s", "every_s"), [(1, 10), (2, 10), (5, 20), (10, 40), (60, 240)])
def test_processes_are_listed_by_time_and_in_a_fourth_of_the_ticks_at_most(interval_s: int, every_s: int) -> None:
    assert process_list_s(interval_s) == every_s
