import json
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cli.builders import run


def test_doctor_reports_missing_metrics_with_their_remedies(tmp_path: Path) -> None:
    findings = json.loads(run("doctor", "--db", str(tmp_path), "--json").stdout)
    areas = {finding["area"] for finding in findings}
    assert {"host", "device", "engine", "database", "settings"} <= areas
    for finding in findings:
        assert finding["ok"] or finding["text"]
    text = run("doctor", "--db", str(tmp_path)).output
    assert "SQLite" in text


def test_doctor_refuses_an_address_of_no_database_before_it_looks_at_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> NoReturn:
        raise AssertionError("the host was looked at")

    monkeypatch.setattr("pertoken.agent.doctor.looking", looked)
    done = run("doctor", "--db", "mysql://host/name")
    assert done.exit_code == 2 and "mysql" in done.stderr
