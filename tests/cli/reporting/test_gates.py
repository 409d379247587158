import json
from pathlib import Path

import pytest

from tests.cli.builders import run
from tests.reports.builders import recorded

AT = ("--at", "2026-11-23T01:00Z")


@pytest.mark.usefixtures("without_built_in_rules")
def test_exit_status_and_json_of_gates(tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    db = ("--db", str(tmp_path / "db"), *AT)
    assert run("costs", *db, "--fail-on", "usd_per_mtok > 50").exit_code == 0
    done = run("costs", *db, "--json", "--fail-on", "usd_per_mtok > 2.5", "--fail-on", "budget_share > 1")
    assert done.exit_code == 1
    assert "gate usd_per_mtok > 2.5: broken: usd_per_mtok of the fleet is 19.1111 USD/Mtok" in done.stderr
    printed = json.loads(done.stdout)
    assert [(gate["status"], gate["limit"]) for gate in printed["gates"]] == [("broken", 2.5), ("not measurable", 1)]
    assert printed["lines"]
    assert run("report", "--csv", *db, "--fail-on", "budget_share > 1").exit_code == 3
    wrong = run("costs", *db, "--fail-on", "usd_per_token > 1")
    assert wrong.exit_code == 2 and "no figure is named usd_per_token" in wrong.stderr
    advised = run("advise", *db, "--json", "--fail-on", "idle_share > 10%")
    assert advised.exit_code == 1 and json.loads(advised.stdout)["gates"][0]["value"] == pytest.approx(0.7)
