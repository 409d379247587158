import csv
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pertoken.config import Settings
from pertoken.costs.spend import UNALLOCATED
from pertoken.reports.figures import read_figures
from pertoken.reports.markdown import COLUMNS, chargeback_csv, dollars
from pertoken.reports.tables import tables
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.units import NANO_USD
from tests.reports.builders import END, figures, period
from tests.scenario import LOW_BATCH_70B, seed

OWNED = (("namespace", "prod"), ("workload", "prod/chat"))
OWNERS = tuple(by for by, _ in OWNED)


def test_lines_of_models_teams_and_tenants_each_sum_to_the_bill(tmp_path: Path) -> None:
    report = figures(tmp_path / "db", usd_per_hour=6.123456789)
    rows = list(csv.DictReader(chargeback_csv(report).splitlines()))
    assert report.bill is not None and tuple(rows[0]) == COLUMNS
    for by in ("model", "team", "tenant"):
        sums = sum((Decimal(row["usd"]) for row in rows if row["by"] == by), Decimal(0))
        assert sums * NANO_USD == report.bill.paid


def test_lines_of_owners_sum_to_the_bill_where_a_deployment_has_one(tmp_path: Path) -> None:
    knobs = {**LOW_BATCH_70B.knobs, "workload": "Deployment prod/chat"}
    seed(tmp_path, replace(LOW_BATCH_70B, knobs=knobs), gpus=4, usd_per_hour=6.88, minutes=120, end_ts=END)
    report = read_figures(open_store(locate(str(tmp_path))), Settings(), period())
    rows = [row for row in csv.DictReader(chargeback_csv(report).splitlines()) if row["by"] in dict(OWNED)]
    lines = {(row["by"], row["name"]): row["usd"] for row in rows}
    assert lines.keys() == {(by, name) for by, owner in OWNED for name in (owner, UNALLOCATED)}
    assert report.bill is not None
    assert {sum(Decimal(row["usd"]) * NANO_USD for row in rows if row["by"] == by) for by in dict(OWNED)} == {
        report.bill.paid
    }
    titles = [table.title for table in tables(report)]
    assert {"By namespace", "By workload"} <= set(titles)
    assert not figures(tmp_path / "without").owners


def test_dollars_without_a_price_are_empty(tmp_path: Path) -> None:
    rows = csv.DictReader(chargeback_csv(figures(tmp_path / "db", None)).splitlines())
    assert {row["usd"] for row in rows} == {""}


@given(st.integers(-(10**18), 10**18))
def test_dollars_lose_no_nano_dollar(nano_usd: int) -> None:
    assert Decimal(dollars(nano_usd)) * NANO_USD == nano_usd
