"""Screens in a terminal while their data fails: a killed agent, and a database that is moved away."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.standin_nvml import Machine, eight, environment
from tests.tui.terminal.tmux import PROMPT, TMUX, pertoken, terminal
from tests.values import new_store

pytestmark = pytest.mark.skipif(TMUX is None, reason="needs tmux")
INTERVAL_S = 5
STALE = re.compile(r"stale (\d+)s")


@contextmanager
def agent(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent of eight stand-in GPUs that records into `db`; kill it at the end."""
    command = [sys.executable, "-P", "-m", "pertoken", "agent", "--db", str(folder / "db")]
    command += ["--interval", f"{INTERVAL_S}s"]
    with (folder / "agent.log").open("wb") as log:
        env = {**os.environ, **environment(Machine(gpus=eight()))}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def newest_ts(db: Path) -> int:
    """Return the time of the last stored row of the host."""
    with closing(sqlite3.connect(f"file:{db / 'telemetry.db'}?mode=ro", uri=True)) as connection:
        (ts,) = connection.execute("SELECT max(ts) FROM host_sample").fetchone()
    return int(ts)


def test_a_killed_agent_is_stale_with_its_age_after_two_intervals(tmp_path: Path) -> None:
    with agent(tmp_path) as process, terminal(tmp_path, 120, 40) as window:
        window.type(f"until [ -e db/telemetry.db ]; do sleep 0.1; done; sleep 1; {pertoken('top', '--db', 'db')}")
        window.until("H100", "live")
        window.until_it(lambda shown: not STALE.search(shown), "hosts that report")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        last = newest_ts(tmp_path / "db")
        shown = window.until_it(lambda shown: STALE.search(shown) is not None, "the word stale with its age")
        seen = time.time()
        match = STALE.search(shown)
        assert match is not None
        # Compare by the clock of the screens: a busy machine may draw late, but the age is exact.
        assert 2 * INTERVAL_S <= int(match[1]) <= 2 * INTERVAL_S + 1
        assert last + 2 * INTERVAL_S <= seen


def test_a_database_deleted_locked_or_of_another_version_is_named_and_shown_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    file = tmp_path / "db" / "telemetry.db"
    new_store(tmp_path / "db")
    with agent(tmp_path), terminal(tmp_path, 120, 40) as window:
        window.type(f"until [ -e db/telemetry.db ]; do sleep 0.1; done; sleep 1; {pertoken('top', '--db', 'db')}")
        window.until("H100", "live")

        (tmp_path / "db").rename(tmp_path / "away")
        window.until("These figures are from", "not answering", "holds no telemetry.db")
        (tmp_path / "away").rename(tmp_path / "db")
        window.until_gone("not answering")

        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            # As a newer pertoken's migration does: it alters a table, then stores its revision.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ALTER TABLE host ADD COLUMN of_tomorrow TEXT")
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
            connection.execute("COMMIT")
        window.until("was written by a newer", "upgrade pertoken here", "These figures are from")
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        window.until_gone("not answering")

        # Telemetry cannot be locked against open readers; advice has no write-ahead log, so it can.
        with closing(sqlite3.connect(file.with_name("advice.db"), isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            window.until("These figures are from", "database is locked", "another process writes it")
            connection.execute("ROLLBACK")
        window.until_gone("not answering")
        window.press("q")
        window.until(PROMPT)
