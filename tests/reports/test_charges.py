from pathlib import Path

from pertoken.costs.lines import USES
from pertoken.costs.spend import spend
from tests.reports.builders import END, figures, period, store_of


def test_lines_sum_to_the_ledger_exactly_as_costs_has_it(tmp_path: Path) -> None:
    report = figures(tmp_path / "db", usd_per_hour=6.123456789)
    assert report.bill is not None
    lines = report.charges.lines
    assert sum(line.nano_usd for line in lines) == report.bill.paid
    for use in USES:
        assert sum(line.nano_usd for line in lines if line.use == use) == getattr(report.bill, use)
    by_model = spend(store_of(tmp_path / "other", 6.123456789), "model", period().hours, END, {}, dated=True)
    assert by_model.nano_usd == report.bill.paid
    assert [(line.name, line.nano_usd) for line in by_model.lines] == [
        (line.name, line.nano_usd) for line in report.models.lines
    ]


def test_days_are_those_of_the_calendar_and_their_tokens_sum_to_those_served(tmp_path: Path) -> None:
    charges = figures(tmp_path / "db").charges
    assert sorted(charges.by_day()) == [END - 3600 - 86_400, END - 3600]
    served = 3600 * 3
    assert sum(tokens.generated or 0 for tokens in charges.tokens.values()) == 40 * served
    assert sum(tokens.prompt or 0 for tokens in charges.tokens.values()) == 160 * served
