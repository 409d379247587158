"""`--at TIME`: everything as of then."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from pertoken.proof.recommendation import Edit
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult, with_judgement, write
from pertoken.store.connect.location import locate
from pertoken.store.repository import AdviceRepository
from pertoken.units import NANO_USD
from tests.cli.builders import NOW, run
from tests.scenario import HEALTHY_70B, LOW_BATCH_70B, seed
from tests.values import set_price

ROOT = Path(__file__).parents[2]
AT = NOW - 3600 - 600
"""Ten minutes before an hour ago: within an hour of the clock, unless that begins then."""
COMMANDS = [
    ("advise", "--since", "1h"),
    ("advise", "--since", "1h", "--json"),
    ("plan", "--since", "1h", "--json"),
    ("costs", "--hours", "3"),
    ("costs", "--hours", "3", "--json", "--fail-on", "regressions > 0"),
    ("costs", "--hours", "3", "--figures", "--json"),
    *(("costs", "--hours", "3", "--by", by) for by in ("model", "tenant", "team", "gpu", "host", "service")),
    ("budget", "--json"),
    *(("report", f"--{form}", "--from", "3h") for form in ("html", "md", "csv", "focus")),
    ("report", "--weekly"),
    ("top", "--once"),
    ("top", "--json"),
]
SCRIPT = """
import json, sys
from click.testing import CliRunner
from pytest import MonkeyPatch
from pertoken.cli import main
from tests.one_process import share_a_process
share_a_process(MonkeyPatch())
folder, at, commands = json.loads(sys.argv[1])
for each in commands:
    done = CliRunner().invoke(main, [*each, "--db", folder, "--at", at], catch_exceptions=False)
    print(json.dumps([each, done.exit_code, done.stdout]))
"""
"""Commands in one process, their outputs as lines."""


def _iso(ts: int) -> str:
    return datetime.fromtimestamp(ts, UTC).isoformat()


@pytest.fixture(scope="module")
def until_then(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A host that served for 40 minutes up to `AT`, at a price."""
    folder = tmp_path_factory.mktemp("then") / "db"
    seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=40, end_ts=AT)
    return str(folder)


@pytest.fixture(scope="module")
def and_later(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with what came later. Commands with `--at` change nothing in it."""
    folder = tmp_path_factory.mktemp("later") / "db"
    _and_later(folder)
    run("advise", "--since", "1h", "--db", str(folder))
    _judge(folder)
    return str(folder)


def _judge(folder: Path) -> None:
    """Note a change from before `AT`, and judge it, after it."""
    with sqlite3.connect(folder / "telemetry.db") as db:
        epoch_id, deployment_id = db.execute("SELECT epoch_id, deployment_id FROM epoch LIMIT 1").fetchone()
    edits = (Edit("deployment", deployment_id, "tp", 1, 2),)
    change = Verdict(deployment_id, epoch_id, epoch_id, AT - 600, "LATER JUDGED on gpu-1", edits, created_ts=AT + 60)
    dearer = with_judgement(change, Judgement(VerdictResult.DEARER, (0.1, 0.2, 0.3)), AT + 120)
    with AdviceRepository(locate(str(folder))).writing() as connection:
        write(connection, [dearer])


def _and_later(folder: Path) -> None:
    """Add a later hour, another host, a later price, an event and a lost metric."""
    minutes = 40 + (NOW - AT) // 60
    where = seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=minutes, end_ts=NOW)
    seed(folder, HEALTHY_70B, gpus=2, usd_per_hour=None, minutes=30, end_ts=NOW, host="gpu-2")
    set_price(where, "H100", 3 * NANO_USD, from_ts=AT + 600)
    with sqlite3.connect(folder / "telemetry.db") as db:
        (host_id, device_id) = db.execute("SELECT host_id, device_id FROM device ORDER BY slot").fetchone()
        db.execute(
            "INSERT INTO event (event_id, host_id, ts, last_ts, count, kind, message) VALUES (1, ?, ?, ?, 1, 'x', 'x')",
            (host_id, AT + 60, AT + 60),
        )
        db.execute(
            "INSERT INTO capability (owner_id, metric, status, since_ts) VALUES (?, 'power_mw', 'failing', ?)",
            (device_id, AT + 60),
        )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_later_rows_and_the_time_of_the_run_change_nothing(
    until_then: str, and_later: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    then = run(*command, "--db", until_then, "--at", _iso(AT))
    assert then.exit_code == 0, then.stderr
    shown = ("18.3", LOW_BATCH_70B.model[-10:], "spend_usd_per_month")
    assert any(line in then.stdout for line in shown)
    expected = then.stdout.replace(until_then, and_later)
    assert run(*command, "--db", and_later, "--at", _iso(AT)).stdout == expected
    monkeypatch.setattr(time, "time", lambda: NOW + 40 * 86_400.0)
    assert run(*command, "--db", and_later, "--at", _iso(AT)).stdout == expected


def test_the_later_verdict_and_advice_are_there_without_a_time(and_later: str) -> None:
    """They are left out above because of `--at`, and not because nothing shows them."""
    text = run("report", "--md", "--from", "3h", "--db", and_later).stdout
    assert "LATER JUDGED" in text and "Nothing is proposed" not in text


def test_output_does_not_depend_on_the_hash_seed(and_later: str) -> None:
    printed = []
    for seed_of_hashes in ("1", "2"):
        given = json.dumps([and_later, _iso(AT), COMMANDS[1:]])
        environment = {**os.environ, "PYTHONHASHSEED": seed_of_hashes}
        command = [sys.executable, "-c", SCRIPT, given]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600, env=environment
        )
        printed.append([json.loads(line) for line in done.stdout.splitlines()])
    assert [arguments for arguments, _, _ in printed[0]] == [list(arguments) for arguments in COMMANDS[1:]]
    assert {status for _, status, _ in printed[0]} <= {0}
    for one, other in zip(*printed, strict=True):
        assert one == other


def test_a_host_that_stopped_later_still_reports_then(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    _and_later(folder)
    printed = json.loads(run("advise", "--json", "--db", str(folder), "--at", _iso(AT)).stdout)
    assert [host["age_s"] for host in printed["fleet"]["hosts"]] == [0]
    assert printed["fleet"]["nano_usd_per_hour"] == 4 * 6.88 * NANO_USD


def test_then_is_known_by_hours_where_ticks_and_minutes_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    at = NOW // 3600 * 3600 - 3600
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=180, end_ts=at + 3600)
    with sqlite3.connect(folder / "telemetry.db") as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name.endswith(("_sample", "_1m", "device_share")):
                db.execute(f"DELETE FROM {name}")
    done = run("advise", "--json", "--since", "2h", "--db", str(folder), "--at", _iso(at))
    fleet = json.loads(done.stdout)["fleet"]
    assert [host["age_s"] for host in fleet["hosts"]] == [0]
    assert fleet["deployments"][0]["generated_tokens"] == 2 * 3600 * 40
    assert fleet["deployments"][0]["generated_tok_s_now"] is None


def test_advice_of_a_past_time_is_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    _and_later(folder)
    assert json.loads(run("advise", "--json", "--db", str(folder), "--at", _iso(AT)).stdout)["recommendations"]
    with sqlite3.connect(folder / "advice.db") as db:
        assert db.execute("SELECT count(*) FROM recommendation").fetchone() == (0,)
    kept = json.loads(run("advise", "--json", "--db", str(folder)).stdout)["recommendations"]
    run("advise", "--db", str(folder), "--at", _iso(AT))
    full = kept[0]["id"]
    assert json.loads(run("advise", "show", full, "--db", str(folder), "--json").stdout)["created_ts"] > AT


def test_top_leaves_out_advice_that_changed_since_then(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    _and_later(folder)
    run("advise", "--db", str(folder))
    text = run("top", "--once", "--db", str(folder), "--at", _iso(AT)).stdout
    assert "No proposal has stood unchanged since then" in text
    assert "Not evaluated: " in run("top", "--once", "--db", str(folder)).stdout
    assert "quantize-weights" in run("advise", "--all", "--db", str(folder)).stdout
    assert "quantize-weights" not in text and "Not evaluated" not in text


@pytest.mark.parametrize("written", ["-70m", "70m"])
def test_a_relative_time_is_that_long_ago(tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "db"
    _and_later(folder)
    monkeypatch.setattr(time, "time", lambda: NOW + 59.0)
    same = run("costs", "--db", str(folder), "--at", written, "--json").stdout
    monkeypatch.undo()
    assert same == run("costs", "--db", str(folder), "--at", _iso(AT), "--json").stdout


def test_a_time_without_an_offset_is_utc_and_one_with_an_offset_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    _and_later(folder)
    abroad = datetime.fromtimestamp(AT, timezone(timedelta(hours=5, minutes=30)))
    plain = datetime.fromtimestamp(AT, UTC).replace(tzinfo=None)
    outputs = {
        run("costs", "--db", str(folder), "--json", "--at", moment.isoformat()).stdout
        for moment in (abroad, plain, datetime.fromtimestamp(AT + 59, UTC))
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("command", [("advise",), ("costs",), ("top", "--once")])
@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("yesterday", "'yesterday' is not a time: write it like"),
        ("", "is not a time"),
        ("2026-13-01", "is not a time"),
        ("2999-01-01", "lies in the future; it is "),
        ("1999-01-01", "nothing was recorded before then; the first row is of "),
        ("-99y", "is not a time"),
    ],
)
def test_a_time_that_cannot_be_is_one_line_and_exit_2(
    recorded: str, command: tuple[str, ...], written: str, reported: str
) -> None:
    done = run(*command, "--db", recorded, "--at", written)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--at" in done.stderr and reported in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("top", "--at", "-1m"), "--at needs --once"),
        (("top", "--once", "--web", "8000"), "give one of them"),
        (("advise", "--at", "-1m", "--every", "1h"), "only one of them"),
    ],
)
def test_exclusive_options_are_one_line_and_exit_2(recorded: str, arguments: tuple[str, ...], reported: str) -> None:
    done = run(*arguments, "--db", recorded)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert reported in done.stderr
