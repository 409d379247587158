"""The advisor at a period, as a process: what doctor and status show of it, and how it ends."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.agent.doctor import Finding, of_jobs
from pertoken.errors import StoreInaccessible
from pertoken.store.connect.location import ProgramLock, StoreLocation, locate
from pertoken.store.connect.turn import AdvisorTurn
from tests.recorded import DEADLINE_S, until
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store


@contextmanager
def advisor(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is an advisor, ended by SIGTERM; its log is `advisor.txt` beside the folder."""
    with (folder.parent / "advisor.txt").open("ab") as log:
        process = subprocess.Popen([sys.executable, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def jobs(folder: Path) -> list[Finding]:
    return of_jobs(locate(str(folder)), time.time())


def test_an_advice_run_at_a_period_is_a_job_that_doctor_shows_until_its_advisor_ends(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    seed(new_store(folder), LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=10, end_ts=int(time.time()) // 60 * 60)
    command = ("-m", "pertoken", "advise", "--db", str(folder), "--every", "1h")
    with advisor(folder, *command) as first:
        until(lambda: all("ran " in job.text for job in jobs(folder)) and jobs(folder), "the first run")
        assert {(job.subject, job.ok) for job in jobs(folder)} == {("advice run", True), ("alerts", True)}
        assert ProgramLock(folder, "advisor").owner() == first.pid
        log = folder.parent / "advisor.txt"
        with advisor(folder, *command) as second:
            until(lambda: "another advisor serves this database" in log.read_text(), "a second advisor that waits")
            assert log.read_text().count("advised: ") == 1
            first.terminate()
            until(lambda: log.read_text().count("advised: ") == 2, "the run of the second advisor")
            assert ProgramLock(folder, "advisor").owner() == second.pid
    assert first.returncode == second.returncode == 0
    assert jobs(folder) == []


FAILS_UNTIL_A_FILE_IS_THERE = """
import sys
from pathlib import Path
from pertoken.advisor.service import serve
from pertoken.errors import StoreError
from pertoken.store.connect.location import locate

def run():
    if not Path(sys.argv[1], "there").exists():
        raise StoreError("the server is away")

serve(locate(sys.argv[1]), run, 0.1)
"""


def test_an_advice_run_that_fails_is_reported_once_and_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    folder.mkdir()
    with advisor(folder, "-c", FAILS_UNTIL_A_FILE_IS_THERE, str(folder)):
        until(lambda: any("failed: the server is away" in job.text for job in jobs(folder)), "a run that fails")
        (job,) = jobs(folder)
        assert (job.ok, job.remedy) == (False, "see the advisor's log")
        (folder / "there").touch()
        until(lambda: all(job.ok for job in jobs(folder)), "a run that works")
    log = (folder.parent / "advisor.txt").read_text()
    assert log == "pertoken advise: advice run: the server is away\n"


LOSES_ITS_TURN = """
import sys
from pertoken.advisor.service import serve
from pertoken.errors import StoreError
from pertoken.schedule.jobs import Job
from pertoken.store.connect import turn
from pertoken.store.connect.location import locate

answers = iter([True, StoreError("the server is away"), StoreError("the server is away"), True])
def take(self):
    answer = next(answers, True)
    if isinstance(answer, StoreError):
        raise answer
    return answer

turn.AdvisorTurn.take = take
serve(locate(sys.argv[1]), lambda: print("advised", flush=True), 3600.0, beside=[Job("beside", lambda: None, 3600.0)])
"""


def test_an_advisor_that_loses_its_turn_waits_for_it_and_begins_again(tmp_path: Path) -> None:
    folder, log = tmp_path / "db", tmp_path / "advisor.txt"
    folder.mkdir()
    with advisor(folder, "-c", LOSES_ITS_TURN, str(folder)):
        until(lambda: "advised" in log.read_text(), "the first run after the turn")
    lines = log.read_text().splitlines()
    assert lines[:2] == [
        "pertoken advise: the turn of this advisor is lost: the server is away",
        "pertoken advise: the server is away",
    ]


def test_a_folder_that_cannot_be_written_ends_the_advisor_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "db").touch()
    with pytest.raises(StoreInaccessible, match="cannot be written"):
        AdvisorTurn(StoreLocation(folder=tmp_path / "db")).take()
