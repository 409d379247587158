"""The figures at the head of a report."""

from typing import NamedTuple

from pertoken.costs.ledger import BillTotal
from pertoken.reports.figures import ReportFigures
from pertoken.reports.tables import UNKNOWN, money_text
from pertoken.text.amounts import headline, price
from pertoken.units import format_count, format_usd


class Headline(NamedTuple):
    """One figure with its name."""

    value: str
    name: str


def headlines(report: ReportFigures) -> tuple[Headline, ...]:
    """Return the figures at the head of a report, most important first."""
    bill, savings = report.bill, report.savings
    proven = savings.proven.nano_usd
    return (
        Headline(UNKNOWN if bill is None else format_usd(bill.paid), "paid" if bill else "paid: no device has a price"),
        Headline(format_usd(price(report)), f"per {headline().unit}"),
        Headline(format_count(report.tokens), "tokens"),
        Headline(idle_text(bill), "of dollars idle"),
        Headline(money_text(savings.bankable), "bankable a month, found"),
        Headline(money_text(savings.taken_bankable), "bankable a month, taken"),
        Headline(UNKNOWN if proven is None else money_text(proven), _proven_by(savings.proven.changes)),
        Headline(str(len(report.regressions)), "regressions"),
    )


def idle_text(bill: BillTotal | None) -> str:
    """Return the idle share of the bill: idle while allocated, and unallocated."""
    if bill is None or not bill.paid:
        return UNKNOWN
    return f"{'≥ ' if bill.busy_is_bound else ''}{(bill.idle + bill.unallocated) / bill.paid:.0%}"


def _proven_by(changes: int) -> str:
    return f"a month left the bill, by {changes} change{'' if changes == 1 else 's'}"
