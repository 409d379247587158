"""The figures a person looks for first, large where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Digits

from pertoken.costs.report.lines import FleetReport
from pertoken.proof.judging.banked import Banked
from pertoken.tui.text.headline import figures, savings_line
from pertoken.tui.widgets.plain_text import PlainText

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan

_FIGURES = 4


class Headline(Vertical):
    """Large digits with captions, or one paragraph on a small screen (by CSS); then what could be saved, and was."""

    def compose(self) -> ComposeResult:
        """One large figure each, and the paragraph."""
        with Horizontal(classes="large"):
            for _ in range(_FIGURES):
                with Vertical():
                    yield Digits("")
                    yield PlainText()
        yield PlainText(classes="small")
        yield PlainText(id="savings-line")

    def show(self, report: FleetReport, plan: Plan | None, banked: Banked | None) -> None:
        """Show the figures of a report, and of the plan and receipts beside it."""
        found = figures(report)
        captions = self.query(".large Static").results(PlainText)
        for figure, digits, caption in zip(found, self.query(Digits), captions, strict=False):
            if digits.value != figure.value:
                digits.update(figure.value)
            caption.update(figure.caption)
        self.query_one(".small", PlainText).update(" · ".join(figure.sentence for figure in found))
        self.query_one("#savings-line", PlainText).update(savings_line(plan, banked))
