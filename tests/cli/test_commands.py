"""The commands a person types, with good input and with bad."""

import json
from pathlib import Path

import pytest

from tests.cli.builders import run


def test_the_first_price_of_a_device_is_for_all_that_was_recorded_and_the_next_from_now(recorded: str) -> None:
    first = run("prices", "set", "6.88", "--for", "H100", "--db", recorded, "--note", "contract")
    assert "H100: $6.88 an hour, from the beginning." in first.output
    assert "It applies to 2 x NVIDIA H100 80GB HBM3." in first.output
    second = run("prices", "set", "$5", "--for", "H100", "--db", recorded)
    assert "$5.00 an hour, from 20" in second.output
    shown = json.loads(run("prices", "show", "--db", recorded, "--json").stdout)
    assert [name["nano_usd_per_device_hour"] for name in shown] == [6_880_000_000, 5_000_000_000]
    assert shown[0]["from_ts"] == 0 < shown[1]["from_ts"]
    text = run("prices", "show", "--db", recorded).output
    assert "from the beginning" in text and "contract" in text


def test_a_price_before_anything_was_recorded_is_kept_for_what_comes(tmp_path: Path) -> None:
    done = run("prices", "set", "0.50", "--for", "cpu", "--db", str(tmp_path / "new"))
    assert done.exit_code == 0
    assert "it applies to devices recorded later" in done.output


def test_a_price_that_matches_nothing_recorded_names_what_is(recorded: str) -> None:
    done = run("prices", "set", "1", "--for", "A100", "--db", recorded)
    assert "No recorded device matches 'A100' yet; recorded: NVIDIA H100 80GB HBM3." in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prices", "set", "-1", "--for", "cpu"], "between 0 and"),
        (["prices", "set", "cheap", "--for", "cpu"], "'cheap' is not a price"),
        (["prices", "set", "nan", "--for", "cpu"], "between 0 and"),
        (["prices", "set", "1", "--for", "cpu", "--from", "soon"], "--from 'soon': write"),
        (["agent", "--interval", "0s"], "--interval: must be at least 1s"),
        (["agent", "--interval", "7s"], "--interval: must be whole seconds that divide a minute"),
        (["agent", "--engine", "gpu-1:8000"], "--engine: 'gpu-1:8000' is not a base URL"),
        (["up", "--engine", "gpu-1:8000"], "--engine: 'gpu-1:8000' is not a base URL"),
        (["agent", "--json"], "--json goes with --once"),
        (["agent", "--db", "postgresql://u@h/d"], "the agent writes to a folder"),
        (["up", "--db", "postgresql://u@h/d"], "--db must be a folder"),
        (["advise", "--since", "yesterday"], "--since: 'yesterday' is not a duration"),
        (["advise", "--config", "/no/such.toml"], "no such settings file"),
        (["db", "purge", "--raw-before", "x"], "--raw-before: 'x' is not a duration"),
        (["db", "purge", "--hours-before", "1"], "--hours-before: '1' is not a duration: write it with a unit"),
        (["config", "check", "--config", "/no/such.toml"], "no such settings file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    if "--db" not in arguments and arguments[0] not in ("config",):
        arguments = [*arguments, "--db", str(tmp_path)]
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["top"], ["advise"], ["db", "info"]])
def test_a_folder_without_a_database_is_one_line_and_exit_1(command: list[str], tmp_path: Path) -> None:
    done = run(*command, "--db", str(tmp_path))
    assert done.exit_code == 1
    assert f"pertoken: {tmp_path}: holds no telemetry.db; start one with" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_rule_file_that_is_not_there_is_named(recorded: str) -> None:
    done = run("advise", "--db", recorded, "--rule", "/no/such.py")
    assert (done.exit_code, "no such file" in done.stderr) == (2, True)
