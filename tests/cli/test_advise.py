"""`pertoken advise`: rule files that are broken or print, tables in files, one piece of advice by its id."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.builders import run
from tests.scenario import LOW_BATCH_70B

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
    ("text", "message"),
    [("import no_such_module", "No module named"), ("x = 1", "defines no rule"), (RULE.format(body="1 / 0"), "Zero")],
)
def test_a_rule_file_that_is_broken_is_named_and_ends_with_exit_2_after_the_other_advice(
    recorded: str, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    done = run("advise", "--db", recorded, "--rule", str(tmp_path / "broken.py"), "--json")
    assert done.exit_code == 2
    assert len(json.loads(done.stdout)["recommendations"]) > 1
    assert f"--rule {tmp_path}/broken.py" in done.stderr and message in done.stderr.splitlines()[-1]


def test_output_of_a_rule_and_its_children_does_not_break_json(recorded: str, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(RULE.format(body="return []"))
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "advise", "--db", recorded, "--rule", tmp_path / "noisy.py", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in json.loads(done.stdout)["recommendations"] if row["rule_id"] == "noisy"]
    assert row["output"].splitlines() == ["printed by a rule", "printed by its child"]
    assert done.stderr == ""


def test_json_is_the_same_for_the_same_database_and_time_but_for_its_run(
    recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    first, second = (json.loads(run("advise", "--db", recorded, "--json").stdout) for _ in range(2))
    for run_values in (first.pop("run"), second.pop("run")):
        assert set(run_values["seconds"]) == {"reading", "rules", "pricing"}
        assert all(rule["seconds"] > 0 and rule["confinement"] for rule in run_values["rules"])
    assert first == second
    assert all({"rule_id", "recommendation_id", "state"} < set(row) for row in first["recommendations"])


def test_a_file_that_is_broken_is_a_row_of_its_own_in_json(recorded: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module")
    printed = json.loads(run("advise", "--db", recorded, "--rule", str(tmp_path / "broken.py"), "--json").stdout)
    (row,) = [row for row in printed["recommendations"] if row["state"] == "FAILED"]
    assert (row["rule_id"], row["target_kind"]) == ("broken", "load")
    (ran,) = [rule for rule in printed["run"]["rules"] if rule["failed"]]
    assert (ran["name"], ran["origin"], ran["seconds"]) == ("broken", str(tmp_path / "broken.py"), None)


def test_tables_in_a_file_or_a_pipe_are_not_cut(recorded: str) -> None:
    text = run("advise", "--db", recorded).stdout
    assert "…" not in text
    assert LOW_BATCH_70B.model in text


def test_one_piece_of_advice_is_written_as_an_issue_and_refused_where_a_form_does_not_fit(recorded: str) -> None:
    rows = json.loads(run("advise", "--db", recorded, "--json").stdout)["recommendations"]
    row = next(row for row in rows if row["variants"] and not row["variants"][0]["replicas"])
    done = run("advise", "export", row["id"], "--as", "issue", "--db", recorded)
    assert done.exit_code == 0 and done.stdout.startswith("# ") and "## Recommendation" in done.stdout
    refused = run("advise", "export", row["id"], "--as", "keda", "--db", recorded)
    assert refused.exit_code == 2 and "changes no number of replicas" in refused.stderr


def test_one_piece_of_advice_is_shown_by_the_id_that_advise_prints(recorded: str) -> None:
    rows = json.loads(run("advise", "--db", recorded, "--json").stdout)["recommendations"]
    text = run("advise", "--all", "--db", recorded).stdout
    for row in rows:
        full = row["id"]
        assert full[:8] in text
        for written in (full[:8], full.upper()):
            assert row["rule_id"] in run("advise", "show", written, "--db", recorded).stdout
    full = rows[-1]["id"]
    one = json.loads(run("advise", "show", full, "--db", recorded, "--json").stdout)
    assert one["recommendation_id"] == rows[-1]["recommendation_id"]


def test_an_id_that_names_no_advice_is_one_line_and_exit_2(recorded: str) -> None:
    run("advise", "--db", recorded)
    for written in ("zz", "", "ffffffffffffffff"):
        done = run("advise", "show", written, "--db", recorded)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "`pertoken advise` lists" in done.stderr


def test_the_head_reports_that_no_list_price_is_recent(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pertoken.catalog.offers.REFRESH_AFTER_DAYS", 10_000)
    assert "Prices: " not in run("advise", "--db", recorded).stdout.splitlines()[0]
    monkeypatch.setattr("pertoken.catalog.offers.REFRESH_AFTER_DAYS", 0)
    head = run("advise", "--db", recorded).stdout.splitlines()[0]
    assert head.startswith("Prices: ") and head.endswith("`pertoken prices update` fetches newer ones")
