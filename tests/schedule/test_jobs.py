"""The states of jobs, as another process reads them from a real agent."""

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken.agent.doctor import Finding, of_jobs
from pertoken.cli import main
from pertoken.schedule.jobs import JobState, read_states, write_states
from pertoken.store.connect.location import locate
from tests.recorded import agent, until

JOBS = ("engine look", "process lists", "roll-ups", "retention", "tidying", "integrity check")


def test_states_are_read_as_they_were_noted_and_only_those_of_the_agent_that_runs(tmp_path: Path) -> None:
    states = (JobState("roll-ups", 9.0, 1010.0, 1001.0, 0.02), JobState("retention", 10.0, 1005.0, error="no room"))
    assert read_states(tmp_path, os.getpid()) == ()
    write_states(tmp_path, states)
    assert read_states(tmp_path, os.getpid()) == states
    assert read_states(tmp_path, 1) == ()


@pytest.mark.parametrize(
    ("now_ts", "text"),
    [
        (1003.0, "ran 2s ago in 0.02 s, next in 7s"),
        (1030.0, "ran 29s ago in 0.02 s, next in 0s"),
        (1200.0, "ran 3m ago in 0.02 s, late by 3m"),
    ],
)
def test_a_job_that_is_long_overdue_is_called_late(now_ts: float, text: str) -> None:
    assert JobState("roll-ups", 9.0, 1010.0, 1001.0, 0.02).text(now_ts) == text


def test_status_and_doctor_show_the_jobs_of_the_agent_that_runs(tmp_path: Path) -> None:
    folder = tmp_path / "db"

    def status() -> str:
        return CliRunner().invoke(main, ["agent", "status", "--db", str(folder)]).output

    with agent(folder, PERTOKEN_AGENT_DISCOVER="false") as process:
        until(lambda: "job       roll-ups: ran" in status(), "the first roll-up to be noted")
        shown = status()
        assert [name for name in JOBS if f"job       {name}: " not in shown] == []
        states = of_jobs(locate(str(folder)), time.time())
        assert [finding.subject for finding in states] == list(JOBS)
        assert all(finding.ok for finding in states)
        assert [state for state in read_states(folder, process.pid) if state.error] == []
    assert of_jobs(locate(str(folder)), time.time()) == []


def test_a_server_that_is_not_there_is_why_the_job_that_ships_failed(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    away = {"PERTOKEN_SHIP_URL": "postgresql://someone@127.0.0.1:1/none", "PERTOKEN_SHIP_EVERY": "1s"}

    def shipping() -> list[Finding]:
        return [job for job in of_jobs(locate(str(folder)), time.time()) if job.subject == "shipping"]

    with agent(folder, PERTOKEN_AGENT_DISCOVER="false", **away):
        until(lambda: any("; failed: " in job.text for job in shipping()), "a round of shipping")
        (job,) = shipping()
    assert not job.ok and "127.0.0.1:1" in job.text
