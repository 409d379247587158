"""Commands without `--config`: the file beside a database is read, and advice of other settings is never replaced."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.configuration import stored_configuration
from pertoken.store.connect.location import locate
from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed

OBJECTIVE = "[slo]\ntpot_ms = 40\n"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with advice of the settings file beside it."""
    for name in ("PERTOKEN_CONFIG", "PERTOKEN_DB"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=2.0, minutes=3, end_ts=NOW)
    (folder / "pertoken.toml").write_text(OBJECTIVE)
    done = run("advise", "--db", str(folder), "--since", "1h")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[0] == f"pertoken: settings of {folder}/pertoken.toml, beside the database"
    return folder


def error_of(*arguments: str) -> str:
    """Return the message of a command that is refused."""
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    return done.stderr


def advice_of(folder: Path) -> list[Any]:
    with sqlite3.connect(folder / "advice.db") as connection:
        return connection.execute("SELECT * FROM recommendation ORDER BY recommendation_id").fetchall()


def test_a_run_with_another_configuration_stores_nothing_unless_it_adopts_the_advice(
    database: Path, tmp_path: Path
) -> None:
    beside, other = database / "pertoken.toml", tmp_path / "other.toml"
    other.write_text("[slo]\ntpot_ms = 4\n")
    before = advice_of(database)
    command = ("advise", "--db", str(database), "--since", "1h", "--config", str(other))
    refused = error_of(*command)
    assert all(text in refused for text in (str(beside), str(other), "--adopt-config"))
    assert advice_of(database) == before
    adopted = run(*command, "--adopt-config")
    assert adopted.exit_code == 0 and f"belongs to {other} from now on, before to {beside}" in adopted.stderr
    stored = stored_configuration(locate(str(database)))
    assert stored is not None and stored.source == str(other)
    assert str(other) in error_of("advise", "--db", str(database), "--since", "1h")


def test_an_environment_variable_that_changes_advice_is_another_configuration(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERTOKEN_SLO_TPOT_MS", "4")
    assert "PERTOKEN_SLO_TPOT_MS" in error_of("advise", "--db", str(database), "--since", "1h")


def test_an_edit_of_the_same_file_is_followed_and_reported(database: Path) -> None:
    (database / "pertoken.toml").write_text("[slo]\ntpot_ms = 41\n")
    done = run("advise", "--db", str(database), "--since", "1h")
    assert done.exit_code == 0 and "not those of the last advice run" in done.stderr
    assert "not those" not in run("advise", "--db", str(database), "--since", "1h").stderr


def test_readers_report_that_stored_advice_is_of_other_settings(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[slo]\ntpot_ms = 4\n")
    for command in (("plan", "--since", "1h"), ("top", "--once"), ("report", "--md"), ("report", "--weekly")):
        arguments = (*command, "--db", str(database))
        warned = run(*arguments, "--config", str(other))
        assert f"stored advice belongs to {database}/pertoken.toml" in warned.stderr, command
        assert warned.exit_code == 0
        assert "stored advice" not in run(*arguments).stderr


def test_a_plan_with_other_settings_runs_the_rules_again(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_stored(*_: object, **__: object) -> None:
        raise AssertionError("the rules ran")

    monkeypatch.setattr("pertoken.advisor.planning.advise", not_stored)
    assert run("plan", "--db", str(database), "--since", "1h").exit_code == 0
    (database / "pertoken.toml").write_text("[slo]\ntpot_ms = 4\n")
    with pytest.raises(AssertionError, match="the rules ran"):
        run("plan", "--db", str(database), "--since", "1h")


def test_a_named_settings_file_comes_before_the_one_beside_the_database(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named.toml"
    named.write_text(OBJECTIVE)
    assert "beside" not in run("budget", "--db", str(database), "--config", str(named)).stderr
    monkeypatch.setenv("PERTOKEN_CONFIG", str(named))
    assert "beside" not in run("budget", "--db", str(database)).stderr


def test_a_settings_file_of_another_user_beside_a_database_is_not_read(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = (database / "pertoken.toml").stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    if owner == 0:  # a file of root is read by everyone
        os.chown(database / "pertoken.toml", 12345, -1)
    done = run("top", "--once", "--json", "--screen", "savings", "--db", str(database))
    assert "is of another user and not read" in done.stderr and "no settings file" in done.stderr
    json.loads(done.stdout)


def test_up_does_not_start_over_advice_of_another_configuration(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[slo]\ntpot_ms = 4\n")
    assert "--adopt-config" in error_of("up", "--db", str(database), "--config", str(other))
    assert not (database / "agent.log").exists(), "no program was started"


def test_a_past_moment_stores_nothing_and_adopts_nothing(database: Path) -> None:
    assert "nothing to adopt" in error_of("advise", "--db", str(database), "--at", "-1m", "--adopt-config")
