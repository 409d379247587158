"""The main figures of the fleet, in large digits if the screen has space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Digits

from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.headline import figures, savings_line
from pertoken.tui.widgets.plain_text import PlainText

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan
    from pertoken.proof.judging.banked import Banked

_FIGURES = 4


class Headline(Vertical):
    """Large digits with captions, or one paragraph on a small screen (by CSS), above a line of savings."""

    def compose(self) -> ComposeResult:
        """Yield the large figures, the paragraph and the line of savings."""
        with Horizontal(classes="large"):
            for _ in range(_FIGURES):
                with Vertical():
                    yield Digits("")
                    yield PlainText()
        yield PlainText(classes="small")
        yield PlainText(id="savings-line")

    def show(self, report: FleetReport, plan: Plan | None, banked: Banked | None) -> None:
        """Show the figures of a report, and the savings of the plan and of receipts."""
        shown = figures(report)
        captions = self.query(".large Static").results(PlainText)
        for figure, digits, caption in zip(shown, self.query(Digits), captions, strict=False):
            if digits.value != figure.value:
                digits.update(figure.value)
            caption.update(figure.caption)
        self.query_one(".small", PlainText).update(" · ".join(figure.sentence for figure in shown))
        self.query_one("#savings-line", PlainText).update(savings_line(plan, banked))
