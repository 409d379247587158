"""The figures a person looks for first, large where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Digits, Static

from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.headline import figures, savings_line

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan
    from pertoken.proof.judging.banked import Banked

_FIGURES = 4


class Headline(Vertical):
    """Large digits with captions, or one paragraph on a small screen (by CSS); then what could be saved, and was."""

    def compose(self) -> ComposeResult:
        """One large figure each, and the paragraph."""
        with Horizontal(classes="large"):
            for _ in range(_FIGURES):
                with Vertical():
                    yield Digits("")
                    yield Static(markup=False)
        yield Static(classes="small", markup=False)
        yield Static(id="savings-line", markup=False)

    def show(self, report: FleetReport, plan: Plan | None, banked: Banked | None) -> None:
        """Show the figures of a report, and of the plan and receipts beside it."""
        found = figures(report)
        captions = self.query(".large Static").results(Static)
        for figure, digits, caption in zip(found, self.query(Digits), captions, strict=False):
            digits.update(figure.value)
            caption.update(figure.caption)
        self.query_one(".small", Static).update(" · ".join(figure.sentence for figure in found))
        self.query_one("#savings-line", Static).update(savings_line(plan, banked))
