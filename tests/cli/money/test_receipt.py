"""`pertoken receipt`, `pertoken rules record`, and what `pertoken advise` verifies and shows."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.proof.recommendation import short_id
from tests.cli.builders import run
from tests.proof.judging.changes import WEEK, Changed, changed_after, written
from tests.proof.looks import judge_at
from tests.values import new_store

CHANGED = changed_after(5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A database in which a saving of a tenth was proven, and the id of its recommendation."""
    folder = tmp_path_factory.mktemp("db")
    kept = Changed(written(folder, -0.10, weeks_after=1), CHANGED)
    judge_at(kept.where, kept.target, Settings(), CHANGED + WEEK)
    return str(folder), short_id(kept.rows()[0])


def test_the_receipt_of_a_recommendation_is_printed_as_markdown_and_reproduced(saved: tuple[str, str]) -> None:
    db, advice_id = saved
    done = run("receipt", advice_id, "--db", db)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "# REALIZED: weights bf16 → fp8"
    assert lines[-1] == "Checked: unaltered, and reproduced from the hours stored beside it."
    assert run("receipt", advice_id, "--md", "--db", db).stdout == done.stdout


def test_receipts_are_listed_and_found_by_the_id_that_the_list_and_the_details_print(saved: tuple[str, str]) -> None:
    db, advice_id = saved
    (line,) = run("receipt", "--db", db).stdout.splitlines()
    assert "  verdict REALIZED, saved 9.6% (" in line and line.endswith(": weights bf16 → fp8, tiny on gpu-1")
    shown = run("advise", "show", advice_id, "--db", db).stdout.splitlines()
    assert shown[-2:] == ["Receipts (`pertoken receipt ID` prints one)", f"  {line}"]
    printed = json.loads(run("receipt", line.split()[0], "--json", "--db", db).stdout)
    assert printed["check"] == {"intact": True, "reproduced": True, "difference": None}
    assert printed["receipt"]["finding"]["verdict"] == "REALIZED"
    assert printed["recommendation"].startswith(advice_id)
    (listed,) = json.loads(run("receipt", "--json", "--db", db).stdout)
    assert listed["id"] == printed["id"]
    (of_advice,) = json.loads(run("advise", "show", advice_id, "--json", "--db", db).stdout)["receipts"]
    assert of_advice == listed


def test_a_receipt_that_was_altered_is_not_printed_and_exits_with_1(saved: tuple[str, str]) -> None:
    db, advice_id = saved
    with closing(sqlite3.connect(Path(db) / "advice.db")) as connection:
        ((body,),) = connection.execute("SELECT body FROM receipt").fetchall()
        altered = body.replace('\\"siblings\\": 0', '\\"siblings\\": 3')
        assert altered != body
        connection.execute("UPDATE receipt SET body = ?", (altered,))
        connection.commit()
        done = run("receipt", advice_id, "--db", db)
        connection.execute("UPDATE receipt SET body = ?", (body,))
        connection.commit()
    assert (done.exit_code, done.stdout) == (
        1,
        "Checked: not intact: its figures were altered after it was made.\n",
    )


def test_the_record_of_a_rule_is_realised_over_promised_savings(saved: tuple[str, str]) -> None:
    lines = run("rules", "record", "--db", saved[0]).stdout.splitlines()
    assert lines == [
        "rule      realised / promised  receipts  not counted",
        "quantize          1.03 ± 0.21         1            0",
    ]
    (printed,) = json.loads(run("rules", "record", "--json", "--db", saved[0]).stdout)
    assert (printed["rule"], printed["record"]["receipts"]) == ("quantize", 1)


def test_without_receipts_the_list_names_what_makes_one_and_an_unknown_id_is_one_line(tmp_path: Path) -> None:
    new_store(tmp_path)
    assert run("receipt", "--db", str(tmp_path)).stdout.startswith("No receipts yet: `pertoken advise`")
    assert run("rules", "record", "--db", str(tmp_path)).stdout.startswith("No receipts of recommendations yet")
    done = run("receipt", "ff", "--db", str(tmp_path))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "holds no receipt 'ff'; `pertoken receipt` lists what there is" in done.stderr


def test_an_advisor_run_verifies_a_change_that_it_finds_a_week_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, -0.10, weeks_after=1)
    monkeypatch.setattr("time.time", lambda: float(CHANGED + WEEK))
    assert run("advise", "--db", str(tmp_path)).exit_code == 0
    (printed,) = json.loads(run("receipt", "--json", "--db", str(tmp_path)).stdout)
    assert (printed["receipt"]["finding"]["verdict"], printed["recommendation"]) == ("REALIZED", None)
