from pathlib import Path

from pertoken.costs.ledger import BillTotal
from pertoken.reports.tables import headlines, idle_text
from pertoken.text.amounts import reset, show_headline
from tests.reports.builders import figures


def test_the_head_of_a_report_has_its_bill_and_its_tokens(tmp_path: Path) -> None:
    known = {headline.name: headline.value for headline in headlines(figures(tmp_path / "db"))}
    assert known["paid"] == "$82.56" and known["per Mtok"] == "$19.11" and known["tokens"] == "2.16M"
    unpriced = {headline.name: headline.value for headline in headlines(figures(tmp_path / "other", None))}
    assert unpriced["paid: no device has a price"] == "–"


def test_the_head_of_a_report_has_the_price_of_the_settings(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    try:
        show_headline("per_request")
        assert [head.value for head in headlines(report) if head.name == "per 1,000 requests"] == ["$38.22"]
        assert [day for day in report.daily_prices(1)[report.hours[0].model] if day[1] is not None]
    finally:
        reset()


def test_idle_dollars_are_a_bound_where_busy_time_is_one() -> None:
    assert idle_text(BillTotal(10, 5, 2, 0, 3)) == "50%"
    assert idle_text(BillTotal(10, 5, 2, 0, 3, busy_is_bound=True)) == "≥ 50%"
    assert idle_text(None) == "–"
