import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cli.builders import run
from tests.store.filled import filled


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

    monkeypatch.setattr("pertoken.agent.doctor.Looker", looked)
    done = run("doctor", "--db", "mysql://host/name")
    assert done.exit_code == 2 and "mysql" in done.stderr


def test_doctor_names_values_of_the_database_that_are_not_used(tmp_path: Path) -> None:
    where = filled(tmp_path / "db", ticks=12)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection, connection:
        connection.execute("UPDATE host SET purchase = 'stolen'")
    findings = json.loads(run("doctor", "--db", str(where), "--json").stdout)
    (finding,) = [finding for finding in findings if finding["subject"] == "rows"]
    assert not finding["ok"] and "host.purchase: must be one of" in finding["text"]


def test_doctor_names_the_age_of_list_prices_and_the_command_that_refreshes_them(tmp_path: Path) -> None:
    (finding,) = [
        finding
        for finding in json.loads(run("doctor", "--db", str(tmp_path), "--json").stdout)
        if finding["area"] == "prices"
    ]
    assert not finding["ok"] and "list prices used are" in finding["text"] and "days old" in finding["text"]
    assert finding["remedy"] == "`pertoken prices update` fetches newer ones"


def test_doctor_accepts_recent_list_prices_and_names_a_provider_without_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = datetime.now(UTC).date()
    offers = tmp_path / "list.csv"
    offers.write_text(
        "provider,instance_type,accelerator,n_devices,region,purchase,usd_per_hour,as_of,source\n"
        f"acme,h100x8,H100 SXM5,8,any,on_demand,24,{today},our contract\n"
    )
    db = str(tmp_path / "db")
    assert run("prices", "import", str(offers), "--yes", "--db", db).exit_code == 0
    monkeypatch.setenv("PERTOKEN_MARKET_PROVIDER", "acme")
    assert "ok  list prices: the list price used is 0 days old" in run("doctor", "--db", db).output
    monkeypatch.setenv("PERTOKEN_MARKET_PROVIDER", "nobody")
    assert "no list price of nobody is known" in run("doctor", "--db", db).output
