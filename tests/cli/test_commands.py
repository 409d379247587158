"""The commands a person types, with good input and with bad."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main
from pertoken.store.open import REVISIONS
from tests.scenario import LOW_BATCH_70B, seed

NOW = int(time.time()) // 60 * 60


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=3, end_ts=NOW)
    return str(folder)


def test_the_first_price_of_a_device_is_for_all_that_was_recorded_and_the_next_from_now(recorded: str) -> None:
    first = run("prices", "set", "6.88", "--for", "H100", "--db", recorded, "--note", "contract")
    assert "H100: $6.88 an hour, from the beginning." in first.output
    assert "It applies to 2 x NVIDIA H100 80GB HBM3." in first.output
    second = run("prices", "set", "$5", "--for", "H100", "--db", recorded)
    assert "$5.00 an hour, from 20" in second.output
    shown = json.loads(run("prices", "show", "--db", recorded, "--json").stdout)
    assert [each["nano_usd_per_device_hour"] for each in shown] == [6_880_000_000, 5_000_000_000]
    assert shown[0]["from_ts"] == 0 < shown[1]["from_ts"]
    text = run("prices", "show", "--db", recorded).output
    assert "from the beginning" in text and "contract" in text


def test_costs_are_told_by_model_and_hour_as_text_json_and_csv(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=120, end_ts=NOW // 3600 * 3600)
    text = run("costs", "--hours", "3", "--db", str(folder)).output
    assert "$/Mtok by hour" in text and f"{LOW_BATCH_70B.model[-10:]}  $19.11" in text
    lines = json.loads(run("costs", "--hours", "3", "--db", str(folder), "--json").stdout)
    assert [line["usd_per_mtok"] for line in lines] == [pytest.approx(2 * 6.88 / (3600 * 200) * 1e6, abs=1e-6)] * 2
    assert [line["usd"] for line in lines] == [13.76] * 2
    header, *rows = run("costs", "--hours", "3", "--db", str(folder), "--csv").output.splitlines()
    assert header == "model,hour,usd,tokens,usd_per_mtok,observed,estimated"
    assert [row.split(",")[2:4] for row in rows] == [["13.76", str(3600 * 200)]] * 2
    assert [row.split(",")[5:] for row in rows] == [["1.0", "False"]] * 2
    assert run("costs", "--hours", "0", "--db", str(folder)).exit_code == 2


def test_a_price_before_anything_was_recorded_is_kept_for_what_comes(tmp_path: Path) -> None:
    done = run("prices", "set", "0.50", "--for", "cpu", "--db", str(tmp_path / "new"))
    assert done.exit_code == 0
    assert "it applies to what comes" in done.output


def test_a_price_that_matches_nothing_recorded_names_what_is(recorded: str) -> None:
    done = run("prices", "set", "1", "--for", "A100", "--db", recorded)
    assert "No recorded device matches 'A100' yet; recorded: NVIDIA H100 80GB HBM3." in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["prices", "set", "-1", "--for", "cpu"], "between 0 and"),
        (["prices", "set", "cheap", "--for", "cpu"], "'cheap' is not a price"),
        (["prices", "set", "nan", "--for", "cpu"], "between 0 and"),
        (["prices", "set", "1", "--for", "cpu", "--from", "soon"], "--from 'soon': write"),
        (["agent", "--interval", "0s"], "--interval: must be at least 1 s"),
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
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    if "--db" not in arguments and arguments[0] not in ("config",):
        arguments = [*arguments, "--db", str(tmp_path)]
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert says in done.stderr
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


RULE = """
import subprocess
from pertoken.rule import rule


@rule("noisy")
def noisy(seen):
    \"\"\"Print.

    ## Why it saves
    It does not.
    ## When it is wrong
    Always.
    ## How to apply
    Not.
    ## Sources
    1. None.
    \"\"\"
    print("printed by a rule")
    subprocess.run(["echo", "printed by its child"])
    {body}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [("import no_such_module", "No module named"), ("x = 1", "defines no rule"), (RULE.format(body="1 / 0"), "Zero")],
)
def test_a_rule_file_that_is_broken_is_named_and_ends_with_exit_2_after_the_other_advice(
    recorded: str, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    done = run("advise", "--db", recorded, "--rule", str(tmp_path / "broken.py"), "--json")
    assert done.exit_code == 2
    assert len(json.loads(done.stdout)["recommendations"]) > 1
    assert f"--rule {tmp_path}/broken.py" in done.stderr and says in done.stderr.splitlines()[-1]


def test_what_a_rule_and_its_children_print_does_not_break_json(recorded: str, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(RULE.format(body="return []"))
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "advise", "--db", recorded, "--rule", tmp_path / "noisy.py", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recommendations"]
    assert "printed by a rule" in done.stderr and "printed by its child" in done.stderr


def test_tables_in_a_file_or_a_pipe_are_not_cut(recorded: str) -> None:
    text = run("advise", "--db", recorded).stdout
    assert "…" not in text
    assert LOW_BATCH_70B.model in text


def test_one_piece_of_advice_is_shown_by_the_id_that_advise_prints(recorded: str) -> None:
    found = json.loads(run("advise", "--db", recorded, "--json").stdout)["recommendations"]
    text = run("advise", "--db", recorded).stdout
    for each in found:
        full = each["id"]
        assert full[:8] in text
        for written in (full[:8], full.upper()):
            assert each["rule_id"] in run("advise", "show", written, "--db", recorded).stdout
    full = found[-1]["id"]
    one = json.loads(run("advise", "show", full, "--db", recorded, "--json").stdout)
    assert one["recommendation_id"] == found[-1]["recommendation_id"]


def test_an_id_that_names_no_advice_is_one_line_and_exit_2(recorded: str) -> None:
    run("advise", "--db", recorded)
    for written in ("zz", "", "ffffffffffffffff"):
        done = run("advise", "show", written, "--db", recorded)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "`pertoken advise` lists" in done.stderr


def test_a_database_says_what_it_holds_and_whether_it_is_whole(recorded: str) -> None:
    found = json.loads(run("db", "info", "--db", recorded, "--json").stdout)
    assert found["telemetry rows"]["device_sample"] == 6
    assert found["telemetry schema"] == REVISIONS["telemetry"][-1]
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


def test_upgrading_lays_both_groups_and_says_so(tmp_path: Path) -> None:
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
    found: int = json.loads(run("db", "info", "--db", folder, "--json").stdout)["telemetry rows"]["device_sample"]
    return found


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
    said = sum(int(line.split()[1].replace(",", "")) for line in done.stdout.splitlines() if line.startswith("  "))
    assert f"{said:,} rows deleted" in purged.stdout
    assert samples(aged) < whole


def test_purging_what_is_not_that_old_asks_nothing(recorded: str) -> None:
    done = run("db", "purge", "--db", recorded)
    assert (done.exit_code, done.stdout) == (0, f"{recorded}: nothing is that old; nothing was deleted.\n")


def test_purging_asks_at_a_terminal(aged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = samples(aged)
    monkeypatch.setattr(sys.modules["pertoken.cli.db"], "_asks", lambda: True)
    for answer, code, left in (("n", 2, True), ("y", 0, False)):
        done = CliRunner().invoke(main, ["db", "purge", "--db", aged, "--raw-before", "0s"], input=f"{answer}\n")
        assert (done.exit_code, samples(aged) == whole) == (code, left), done.output


def test_settings_are_written_checked_and_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "sub" / "pertoken.toml")
    assert run("config", "init", "--config", file).output == f"Wrote {file}.\n"
    assert run("config", "init", "--config", file).exit_code == 2
    assert run("config", "check", "--config", file).output == f"{file}: good.\n"
    shown = json.loads(run("config", "show", "--config", file, "--json").stdout)
    assert shown["agent.interval"] == 10
    assert "agent.interval = 10" in run("config", "show", "--config", file).output


def test_doctor_says_what_is_missing_and_how_to_switch_it_on(tmp_path: Path) -> None:
    found = json.loads(run("doctor", "--db", str(tmp_path), "--json").stdout)
    areas = {each["area"] for each in found}
    assert {"host", "device", "engine", "database", "settings"} <= areas
    for each in found:
        assert each["ok"] or each["text"]
    text = run("doctor", "--db", str(tmp_path)).output
    assert "SQLite" in text


def test_top_without_a_terminal_prints_the_facts(recorded: str) -> None:
    output = run("top", "--db", recorded).output
    assert "Llama-3.3-70B-Instruct" in output
    assert "pertoken prices set" in output


def test_an_installation_is_shown_before_it_is_done() -> None:
    done = run("agent", "install", "--dry-run")
    assert done.exit_code == 0
    assert "# /etc/systemd/system/pertoken-agent.service" in done.stdout
    assert "$ systemctl enable --now pertoken-agent.service" in done.stdout


@pytest.mark.parametrize("command", ["status", "release", "resume"])
def test_without_an_agent_there_is_nothing_to_tell_and_that_is_said(command: str, tmp_path: Path) -> None:
    done = run("agent", command, "--db", str(tmp_path))
    assert done.exit_code == 1
    assert f"pertoken: no agent records in {tmp_path}" in done.stderr
