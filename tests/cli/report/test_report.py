import csv
import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.cli.builders import run
from tests.reports.builders import recorded

AT = ("--at", "2026-11-23T01:00Z", "--from", "48h")


@pytest.mark.parametrize("form", ["html", "md", "csv", "focus"])
def test_a_dated_report_has_the_same_bytes_each_time(form: str, tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    given = ("report", f"--{form}", "--db", str(tmp_path / "db"), *AT)
    first, second = run(*given), run(*given)
    assert first.exit_code == 0 and first.stdout_bytes == second.stdout_bytes and first.stdout


def test_focus_rows_sum_to_what_costs_prints(tmp_path: Path) -> None:
    recorded(tmp_path / "db", 6.123456789)
    file = tmp_path / "focus.csv"
    done = run("report", "--focus", "--db", str(tmp_path / "db"), *AT, "--out", str(file))
    assert done.stderr == f"{file}: 2026-11-21 01:00Z to 2026-11-23 01:00Z.\n"
    total = sum(Decimal(row["BilledCost"]) for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    given = ("costs", "--by", "model", "--hours", "48", "--at", "2026-11-23T01:00Z", "--db", str(tmp_path / "db"))
    assert float(total) == pytest.approx(sum(line["usd"] for line in json.loads(run(*given, "--json").stdout)))


def test_a_report_needs_a_form_and_a_file_that_can_be_written(tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    assert "choose a format" in run("report", "--db", str(tmp_path / "db")).stderr
    done = run("report", "--md", "--db", str(tmp_path / "db"), *AT, "--out", str(tmp_path / "none" / "r.md"))
    assert done.exit_code == 1 and "cannot be written" in done.stderr
