"""The bill of a window as a sentence, and as a bar."""

from pertoken.costs.ledger import BillTotal
from pertoken.costs.report.lines import FleetReport
from pertoken.text.words import observed, usd_parts
from pertoken.units import format_duration

PARTS = ("busy", "idle", "other", "unallocated")
"""Parts of a bill in the order they are written; `BillTotal` defines them."""


GLYPHS = "█▓▒░"
"""Glyphs of the bar, in the order of `PARTS`."""


def bill_sentence(report: FleetReport, legend: str = "") -> str:
    """Return the bill as a sentence: `Paid $8.00 in 1h, 62% observed: busy $3.00 + idle $2.00 + ...`.

    The rounded parts add up to the rounded sum. If busy time is an upper bound: `busy ≤ $3.00 + idle ≥ $2.00`.
    `legend` has a glyph for each part, or is empty.
    """
    window = format_duration(report.window_s)
    if report.bill is None:
        why = "no device has a price yet" if report.bill_observed is None else "nothing was recorded"
        return f"Paid in {window}: not known, because {why}."
    paid, parts = usd_parts(report.bill.paid, _amounts(report.bill))
    sign = {"busy": "≤ ", "idle": "≥ "} if report.bill.busy_is_bound else {}
    marks = [f"{glyph} " for glyph in legend] or [""] * len(PARTS)
    split = " + ".join(
        f"{mark}{name} {sign.get(name, '')}{text}" for mark, name, text in zip(marks, PARTS, parts, strict=True)
    )
    about = "about " if report.estimated else ""
    return f"Paid {about}{paid} in {window}, {observed(report.bill_observed)} observed: {split}"


def bar_cells(bill: BillTotal, width: int) -> tuple[int, ...]:
    """Return the cells of each of `PARTS` in a bar of `width` cells, by largest remainder; 0 if nothing was paid."""
    amounts = _amounts(bill)
    if not bill.paid:
        return (0,) * len(amounts)
    cells = [amount * width // bill.paid for amount in amounts]
    order = sorted(range(len(amounts)), key=lambda i: amounts[i] * width % bill.paid, reverse=True)
    for i in order[: width - sum(cells)]:
        cells[i] += 1
    return tuple(cells)


def _amounts(bill: BillTotal) -> tuple[int, int, int, int]:
    return bill.busy, bill.idle, bill.other, bill.unallocated
