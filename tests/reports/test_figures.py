from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.reports.figures import best_of_each_target, total, unconfirmed
from pertoken.units import NANO_USD
from tests.reports.builders import figures


def advice(number: int, bankable: int, *touches: str, state: State = State.OPEN) -> Recommendation:
    money = (bankable, bankable, bankable)
    variant = Variant(key=str(number), title=f"change {number}", bankable=money, touches=touches)
    return Recommendation(number, "rule", state, variant.title, "chat", variants=(variant,))


def test_a_report_has_the_bill_the_models_and_the_cost_of_a_token(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    assert report.bill is not None and report.bill.paid == pytest.approx(4 * 3 * 6.88 * NANO_USD)
    assert report.nano_usd_per_mtok == pytest.approx(2 * 6.88 / (3600 * 200) * 1e6 * NANO_USD)
    assert report.tokens == 3600 * 200 * 3
    assert {line.name for line in report.teams.lines} == {"search", "unattributed", "unallocated"}
    assert sum(line.nano_usd for line in report.tenants.lines) == report.bill.paid
    (days,) = report.daily_per_mtok(3).values()
    assert [price for _, price in days if price is not None] == [report.nano_usd_per_mtok] * 2


def test_without_a_price_dollars_are_unknown_and_not_nought(tmp_path: Path) -> None:
    report = figures(tmp_path / "db", usd_per_hour=None)
    assert report.bill is None and report.nano_usd_per_mtok is None and report.tokens > 0


def test_of_changes_that_touch_the_same_only_the_dearest_counts() -> None:
    rows = [advice(1, 10, "service:a"), advice(2, 30, "service:a", "host:x"), advice(3, 5, "host:y")]
    rows.append(replace(advice(4, 99, "host:z"), state=State.DISMISSED))
    rows.append(replace(advice(5, 80, "host:u"), unconfirmed="no telemetry"))
    assert [row.recommendation_id for row in best_of_each_target(rows)] == [2, 3]
    assert [row.recommendation_id for row in unconfirmed(rows)] == [5], "listed apart, in no sum"
    assert total([(1, 2, 3), None, (10, 20, 30)]) == (11, 22, 33)
    assert total([None]) is None
