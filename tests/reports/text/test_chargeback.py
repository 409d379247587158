import csv
from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pertoken.reports.text.chargeback import COLUMNS, chargeback_csv, dollars
from pertoken.units import NANO_USD
from tests.reports.builders import figures


def test_lines_of_models_teams_and_tenants_each_sum_to_the_bill(tmp_path: Path) -> None:
    report = figures(tmp_path / "db", usd_per_hour=6.123456789)
    rows = list(csv.DictReader(chargeback_csv(report).splitlines()))
    assert report.bill is not None and tuple(rows[0]) == COLUMNS
    for by in ("model", "team", "tenant"):
        sums = sum((Decimal(row["usd"]) for row in rows if row["by"] == by), Decimal(0))
        assert sums * NANO_USD == report.bill.paid


def test_dollars_without_a_price_are_empty(tmp_path: Path) -> None:
    rows = csv.DictReader(chargeback_csv(figures(tmp_path / "db", None)).splitlines())
    assert {row["usd"] for row in rows} == {""}


@given(st.integers(-(10**18), 10**18))
def test_dollars_lose_no_nano_dollar(nano_usd: int) -> None:
    assert Decimal(dollars(nano_usd)) * NANO_USD == nano_usd
