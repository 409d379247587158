"""The bill of the window as one bar and one sentence."""

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from pertoken.costs.lines import FleetReport
from pertoken.tui.bill import PARTS, bar_cells, bill_sentence


class BillBar(Vertical):
    """What was paid, and for what; the colours of the parts are in the style sheet."""

    def compose(self) -> ComposeResult:
        """The sentence, and a bar with one piece for each part."""
        yield Static(id="paid", markup=False)
        with Horizontal():
            for name in PARTS:
                yield Static(classes=name, markup=False)

    def show(self, report: FleetReport) -> None:
        """Show the bill of a report."""
        self.query_one("#paid", Static).update(bill_sentence(report))
        self.query_one(Horizontal).display = report.bill is not None and report.bill.paid > 0
        if report.bill is None:
            return
        for name, cells in zip(PARTS, bar_cells(report.bill, max(1, self.content_size.width)), strict=True):
            piece = self.query_one(f".{name}", Static)
            piece.styles.width = cells
            piece.update(_GLYPHS[name] * cells)


_GLYPHS = dict(zip(PARTS, "█▓▒░", strict=True))
