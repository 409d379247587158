import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.builders import run
from tests.scenario import LOW_BATCH_70B, seed

NOW = 1_790_000_040 // 60 * 60
"""Within a month, so that no test runs over its end."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: float(NOW + 5))


def noted(folder: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "advice.db")) as connection:
        return connection.execute("SELECT kind, threshold_1e4, budget_nano_usd FROM budget_alert").fetchall()


def test_a_threshold_that_is_reached_exits_with_3_and_is_noted_once_a_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=10, end_ts=NOW)
    plain = run("budget", "--db", str(folder))
    assert plain.exit_code == 0 and "none is set: `budget.usd_per_month`" in plain.output
    assert "not known: 0 whole days are recorded" in plain.output
    monkeypatch.setenv("PERTOKEN_BUDGET_USD_PER_MONTH", "2.5")
    reached = run("budget", "--db", str(folder))
    assert reached.exit_code == 3 and "80% of the budget is spent" in reached.output
    assert run("budget", "--db", str(folder), "--json").exit_code == 3
    assert noted(folder) == [("spent", 8000, 2_500_000_000)]
    monkeypatch.setenv("PERTOKEN_BUDGET_USD_PER_MONTH", "1000")
    printed = json.loads(run("budget", "--db", str(folder), "--json").stdout)
    assert (printed["alerts"], printed["budget_usd"]) == ([], 1000) and printed["spent_usd"] == pytest.approx(
        2.2933, rel=1e-3
    )


def test_a_dated_budget_notes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=10, end_ts=NOW)
    monkeypatch.setenv("PERTOKEN_BUDGET_USD_PER_MONTH", "0.5")
    assert run("budget", "--db", str(folder), "--at", "2m").exit_code == 3 and noted(folder) == []


def test_thresholds_are_shares_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERTOKEN_BUDGET_ALERT_AT", "80")
    refused = run("budget", "--db", str(tmp_path))
    assert refused.exit_code == 2 and "must be shares of the budget" in refused.output


def test_an_owner_has_a_budget_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "db"
    owned = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, "label:team": "search"})
    where = seed(folder, owned, gpus=4, usd_per_hour=6.88, minutes=10, end_ts=NOW)
    seed(where, LOW_BATCH_70B, gpus=3, usd_per_hour=6.88, minutes=10, end_ts=NOW, host="b")
    held = 2 * 6.88 / 6  # of four and three GPUs each deployment holds two
    alone = json.loads(run("budget", "--owner", "label:team=search", "--db", str(folder), "--json").stdout)
    assert (alone["owner"], alone["spent_usd"], alone["budget_usd"]) == ("label:team=search", pytest.approx(held), None)
    monkeypatch.setenv("PERTOKEN_BUDGET_OWNERS", '{"label:team=search" = 2.5, "namespace=prod" = 1}')
    both = run("budget", "--db", str(folder), "--json")
    printed = json.loads(both.stdout)
    assert printed["spent_usd"] == pytest.approx(7 * 6.88 / 6) and both.exit_code == 3
    assert [(own["owner"], own["spent_usd"]) for own in printed["owners"]] == [
        ("label:team=search", pytest.approx(held)),
        ("namespace=prod", None),
    ]
    assert run("budget", "--db", str(folder)).output.count("whole month") == 3
    assert noted(folder) == [("spent label:team=search", 8000, 2_500_000_000)]
    refused = run("budget", "--owner", "search", "--db", str(folder))
    assert refused.exit_code == 2 and "must be BASIS=NAME" in refused.output
