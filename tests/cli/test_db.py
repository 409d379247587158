"""Content, integrity and schema of a database."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.store.connect.open import REVISIONS
from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed


def test_db_info_counts_the_rows_and_db_check_verifies_them(recorded: str) -> None:
    printed = json.loads(run("db", "info", "--db", recorded, "--json").stdout)
    assert printed["telemetry rows"]["device_sample"] == 6
    assert printed["telemetry schema"] == REVISIONS["telemetry"][-1]
    assert "device_sample" in run("db", "info", "--db", recorded).output
    assert "are good" in run("db", "check", "--db", recorded).output


def test_a_damaged_database_fails_its_check(recorded: str) -> None:
    file = Path(recorded) / "telemetry.db"
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
    file.write_bytes(content)
    done = run("db", "check", "--db", recorded)
    assert done.exit_code == 1
    assert "fault" in done.stderr


def test_upgrading_creates_both_groups_of_tables_and_reports_it(tmp_path: Path) -> None:
    done = run("db", "upgrade", "--db", str(tmp_path / "new"))
    assert f"telemetry went from nothing to {REVISIONS['telemetry'][-1]}." in done.output
    again = run("db", "upgrade", "--db", str(tmp_path / "new"))
    assert f"telemetry is at {REVISIONS['telemetry'][-1]}." in again.output


@pytest.fixture
def aged(tmp_path: Path) -> str:
    """A folder with two whole hours of ticks."""
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=NOW // 3600 * 3600)
    return str(folder)


def test_purging_raw_rows_changes_no_total(aged: str) -> None:
    before = json.loads(run("advise", "--db", aged, "--since", "4h", "--json").stdout)["fleet"]["deployments"]
    done = run("db", "purge", "--db", aged, "--raw-before", "0s", "--minutes-before", "30d", "--yes")
    assert "rows deleted" in done.output
    after = json.loads(run("advise", "--db", aged, "--since", "4h", "--json").stdout)["fleet"]["deployments"]
    totals = ("generated_tokens", "prompt_tokens", "cached_tokens", "busy", "nano_usd", "ttft_p95_s", "incomplete")
    assert [after[0][name] for name in totals] == [before[0][name] for name in totals]


def samples(folder: str) -> int:
    n_rows: int = json.loads(run("db", "info", "--db", folder, "--json").stdout)["telemetry rows"]["device_sample"]
    return n_rows


def test_purging_without_anybody_to_ask_shows_what_would_go_and_deletes_nothing(aged: str) -> None:
    whole = samples(aged)
    refused = run("db", "purge", "--db", aged, "--raw-before", "0s")
    assert refused.exit_code == 2
    assert f"{'device_sample':22} {whole - 2:>16,}" in refused.stdout and "--yes" in refused.stderr
    assert samples(aged) == whole


def test_a_dry_run_of_purging_names_the_tables_and_rows_and_deletes_nothing(aged: str) -> None:
    whole = samples(aged)
    done = run("db", "purge", "--db", aged, "--raw-before", "0s", "--dry-run")
    assert done.exit_code == 0 and "device_sample" in done.stdout and "Nothing was deleted" in done.stdout
    assert samples(aged) == whole
    purged = run("db", "purge", "--db", aged, "--raw-before", "0s", "--yes")
    printed = sum(int(line.split()[1].replace(",", "")) for line in done.stdout.splitlines() if line.startswith("  "))
    assert f"{printed:,} rows deleted" in purged.stdout
    assert samples(aged) < whole


def test_purging_without_rows_of_that_age_asks_nothing(recorded: str) -> None:
    done = run("db", "purge", "--db", recorded)
    assert (done.exit_code, done.stdout) == (0, f"{recorded}: nothing is that old; nothing was deleted.\n")


def test_purging_asks_at_a_terminal(aged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = samples(aged)
    monkeypatch.setattr("pertoken.cli.options.has_person", lambda: True)
    for answer, code, left in (("n", 2, True), ("y", 0, False)):
        done = CliRunner().invoke(main, ["db", "purge", "--db", aged, "--raw-before", "0s"], input=f"{answer}\n")
        assert (done.exit_code, samples(aged) == whole) == (code, left), done.output
