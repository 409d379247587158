import time
from pathlib import Path

import pytest

from pertoken.store.connect.location import ProgramLock
from pertoken.store.connect.turn import AdvisorTurn
from tests.advisor.test_service import advisor, jobs
from tests.cli.builders import run
from tests.recorded import until
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database with an hour of telemetry."""
    folder, end_ts = tmp_path / "db", int(time.time()) // 60 * 60
    seed(new_store(folder), LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=60, end_ts=end_ts)
    return folder


def test_without_an_advisor_its_state_is_an_error_with_the_next_step(folder: Path) -> None:
    done = run("advisor", "status", "--db", str(folder))
    assert done.exit_code == 1
    assert f"no advisor serves {folder}: `sudo pertoken advisor install`" in done.stderr


def test_the_advisor_runs_the_rules_and_shows_when_they_run_next(folder: Path) -> None:
    with advisor(folder, "-m", "pertoken", "advisor", "--db", str(folder)) as process:
        until(lambda: any(job.subject == "advice run" and "ran " in job.text for job in jobs(folder)), "the first run")
        done = run("advisor", "status", "--db", str(folder))
        assert done.exit_code == 0
        assert "job       advice run: ran " in done.stdout and "next in " in done.stdout
        assert "No rule has run yet" not in done.stdout
    assert process.returncode == 0


def test_before_the_first_run_the_state_has_the_time_that_is_left(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    turn = AdvisorTurn(where)
    assert turn.take()
    try:
        done = run("advisor", "status", "--db", str(tmp_path))
        assert "advice    No rule has run yet. The advisor runs the rules in 5m" in done.stdout
    finally:
        turn.release()


def test_an_advisor_names_the_telemetry_that_it_waits_for_and_ends_at_a_database_that_it_can_never_read(
    tmp_path: Path,
) -> None:
    folder, log = tmp_path / "db", tmp_path / "advisor.txt"
    with advisor(folder, "-m", "pertoken", "advisor", "--db", str(folder)) as process:
        until(lambda: ProgramLock(folder, "advisor").owner() == process.pid, "the advisor")
    assert process.returncode == 0 and "waits until there is telemetry" in log.read_text()
    (folder / "telemetry.db").write_bytes(b"not a database at all\n" * 400)
    done = run("advisor", "--db", str(folder))
    assert done.exit_code == 1 and "file is not a database" in done.stderr
