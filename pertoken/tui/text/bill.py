"""The bill of a window in words, and as a bar."""

from pertoken.costs.ledger import Bill
from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.words import observed, usd_parts
from pertoken.units import format_duration

PARTS = ("busy", "idle", "other", "unallocated")
"""In the order they are written; `Bill` says what each is."""


GLYPHS = "█▓▒░"
"""Of the parts of the bar, in the order of `PARTS`."""


def bill_sentence(report: FleetReport, legend: str = "") -> str:
    """`Paid $8.00 in 1h, 62% observed: busy $3.00 + idle $2.00 + ...`, adding up as it is read.

    Where busy time is an upper bound, it is `busy ≤ $3.00 + idle ≥ $2.00`. `legend`: a glyph for each part.
    """
    window = format_duration(report.window_s)
    if report.bill is None:
        why = "no device has a price yet" if report.bill_observed is None else "nothing was recorded in it"
        return f"Paid in {window}: not known, since {why}."
    paid, parts = usd_parts(report.bill.paid, _amounts(report.bill))
    sign = {"busy": "≤ ", "idle": "≥ "} if report.bill.busy_is_bound else {}
    marks = [f"{glyph} " for glyph in legend] or [""] * len(PARTS)
    split = " + ".join(
        f"{mark}{name} {sign.get(name, '')}{text}" for mark, name, text in zip(marks, PARTS, parts, strict=True)
    )
    about = "about " if report.estimated else ""
    return f"Paid {about}{paid} in {window}, {observed(report.bill_observed)} observed: {split}"


def bar_cells(bill: Bill, width: int) -> tuple[int, ...]:
    """Cells of a bar of `width` for each of `PARTS`, by largest remainder; all 0 where nothing was paid."""
    amounts = _amounts(bill)
    if not bill.paid:
        return (0,) * len(amounts)
    cells = [amount * width // bill.paid for amount in amounts]
    order = sorted(range(len(amounts)), key=lambda i: amounts[i] * width % bill.paid, reverse=True)
    for i in order[: width - sum(cells)]:
        cells[i] += 1
    return tuple(cells)


def _amounts(bill: Bill) -> tuple[int, int, int, int]:
    return bill.busy, bill.idle, bill.other, bill.unallocated
