"""The bill of the window as a sentence and a bar."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from pertoken.costs.ledger import BillTotal
from pertoken.costs.report.lines import FleetReport
from pertoken.text.costs import GLYPHS, PARTS, bar_cells, bill_sentence
from pertoken.tui.widgets.plain_text import PlainText


class Bar(Widget):
    """Bar of the parts of a bill, in the order of the sentence; the style sheet has their colours."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(PARTS)

    def __init__(self) -> None:
        super().__init__()
        self.bill = BillTotal(0, 0, 0, 0, 0)

    def render(self) -> Text:
        """Return the bar at the present width."""
        cells = bar_cells(self.bill, self.size.width)
        parts = zip(PARTS, GLYPHS, cells, strict=True)
        return Text.assemble(*((glyph * n, self.get_component_rich_style(name)) for name, glyph, n in parts))


class BillBar(Vertical):
    """Sentence and bar of a bill."""

    def compose(self) -> ComposeResult:
        """Yield the sentence and the bar."""
        yield PlainText()
        yield Bar()

    def show(self, report: FleetReport) -> None:
        """Show the bill of a report."""
        self.query_one(PlainText).update(bill_sentence(report, GLYPHS if report.bill and report.bill.paid else ""))
        bar = self.query_one(Bar)
        bar.bill = report.bill or BillTotal(0, 0, 0, 0, 0)
        bar.set_class(not bar.bill.paid, "-empty")
        bar.refresh()
