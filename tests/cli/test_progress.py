"""Progress of work that takes seconds: a line with the phase, redrawn by a thread."""

import io
import re
import sqlite3
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from pertoken.cli import options
from pertoken.cli.options import Progress, progress_bar
from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import set_price

DEADLINE_S = 30.0


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal, as far as progress knows."""
    monkeypatch.setattr(options, "_on_terminal", lambda: True)
    monkeypatch.setattr(options, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(options, "REDRAWN_EVERY_S", 0.01)
    return io.StringIO()


def test_it_moves_while_one_statement_runs_and_is_gone_at_the_end(watched: io.StringIO) -> None:
    deadline = time.monotonic() + DEADLINE_S

    def drawn() -> int:
        return len({line for line in watched.getvalue().split("\r") if "Checking \\x1b rows: 3 of 12 (25%)" in line})

    with (
        redirect_stderr(watched),
        Progress("Checking \x1b rows", 12) as shown,
        sqlite3.connect(":memory:") as connection,
    ):
        shown.advance(3)
        # One statement, which gives SQLite's handler a look from time to time and ends when enough was drawn.
        connection.set_progress_handler(lambda: int(drawn() >= 3 or time.monotonic() > deadline), 100_000)
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    connection.close()
    assert drawn() >= 3
    assert watched.getvalue().endswith("\r") and not watched.getvalue().split("\r")[-2].strip()


def test_output_during_progress_is_on_its_own_line(watched: io.StringIO) -> None:
    deadline = time.monotonic() + DEADLINE_S
    with redirect_stderr(watched), Progress("Checking") as shown:
        while "Checking" not in watched.getvalue():
            assert time.monotonic() < deadline
        with shown._lock:
            shown._clear()
            assert watched.getvalue().endswith("\r") and not watched.getvalue().split("\r")[-2].strip()


def test_it_is_shown_and_moves_at_least_every_2_seconds() -> None:
    assert options.SHOWN_AFTER_S <= 2 and options.REDRAWN_EVERY_S <= 2


def test_no_line_of_a_bar_is_wider_than_the_terminal(watched: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(watched, "isatty", lambda: True)
    with redirect_stderr(watched), progress_bar("Making a demo", 3) as show:
        for done in range(1, 4):
            show("Simulating hosts \x1b " * 4, done)
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[?\d]*\w", "", watched.getvalue()))
    assert any("100%" in line and "Simulating" in line for line in lines)
    assert max(map(len, lines)) < 60


def test_no_progress_is_shown_without_a_terminal() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), Progress("Checking") as shown:
        assert shown._thread is None
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("command", "phases"),
    [
        ("db check", ["Checking"]),
        ("db upgrade", ["Upgrading telemetry", "Upgrading advice"]),
        ("db info", ["Counting rows"]),
        (
            "db purge --raw-before 0s --yes",
            ["Counting old rows", "Bringing roll-ups up to date", "Deleting rows"],
        ),
        ("export csv --table event --out {out}", ["Counting rows of event", "Exporting event"]),
        ("prices set 2 --for H100 --from ever --yes", ["Pricing past hours again"]),
        ("costs", ["Reading 24 hours"]),
    ],
)
def test_long_work_names_its_phases(
    command: str, phases: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=NOW // 3600 * 3600)
    set_price(where, "H100", 10**9)
    assert named_by(monkeypatch, *command.format(out=tmp_path / "out.csv").split(), "--db", str(where)) == phases


def test_import_names_its_phases(recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "host.csv"
    run("export", "csv", "--table", "host", "--out", str(file), "--db", recorded)
    phases = named_by(monkeypatch, "import", str(file), "--table", "host", "--db", str(tmp_path / "new"))
    assert phases == ["Upgrading telemetry", "Importing host"]


def named_by(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """Run a command; return the phases it named."""
    lines: list[str] = []
    begin, go_on = Progress.__init__, Progress.phase

    def began(self: Progress, phase: str, of: int | None = None) -> None:
        lines.append(phase)
        begin(self, phase, of)

    def went_on(self: Progress, name: str, of: int | None = None) -> None:
        lines.append(name)
        go_on(self, name, of)

    monkeypatch.setattr(Progress, "__init__", began)
    monkeypatch.setattr(Progress, "phase", went_on)
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return lines
