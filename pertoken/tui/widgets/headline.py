"""Main figures: large digits with captions, or one paragraph on a small screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.renderables.digits import Digits
from textual.widget import Widget

from pertoken.costs.report.lines import FleetReport
from pertoken.text.summary import Figure, figures, savings_line
from pertoken.tui.widgets.plain_text import PlainText

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan
    from pertoken.proof.judging.receipts import Banked

_FIGURES = 4


class LargeFigures(Widget):
    """Figures side by side, each three lines high with its caption below."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"figures--digits", "figures--caption"}

    def __init__(self) -> None:
        super().__init__(classes="large")
        self.figures: Sequence[Figure] = ()

    def show(self, shown: Sequence[Figure]) -> None:
        """Show these figures."""
        if shown != self.figures:
            self.figures = shown
            self.refresh()

    def render(self) -> Text:
        """Return the figures as four lines of the present width."""
        width = self.size.width
        widths = [(n + 1) * width // _FIGURES - n * width // _FIGURES for n in range(_FIGURES)]
        digits, muted = (self.get_component_rich_style(f"figures--{name}") for name in ("digits", "caption"))
        columns = [
            (*_digit_lines(figure.value), set_cell_size(figure.caption, cells - 1))
            for figure, cells in zip(self.figures, widths, strict=False)
        ]
        lines = ["".join(map(set_cell_size, row, widths)) for row in zip(*columns, strict=True)]
        return Text.assemble(*((f"{line}\n", digits) for line in lines[:-1]), *((line, muted) for line in lines[-1:]))


def _digit_lines(text: str) -> list[str]:
    pieces = [piece.text for piece in Digits(text).render(Style()) if isinstance(piece, Segment)]
    return [piece for piece in pieces if piece != "\n"]


class Headline(Vertical):
    """Large figures, or one paragraph on a small screen (by CSS), above a line of savings."""

    def compose(self) -> ComposeResult:
        """Yield the large figures, the paragraph and the line of savings."""
        yield LargeFigures()
        yield PlainText(classes="small")
        yield PlainText(id="savings-line")

    def show(self, report: FleetReport, plan: Plan | None, banked: Banked | None, no_advice: str | None) -> None:
        """Show the figures of a report, and the savings of the plan and of receipts; or why there is no advice yet."""
        shown = figures(report)
        self.query_one(LargeFigures).show(shown[:_FIGURES])
        self.query_one(".small", PlainText).update(" · ".join(figure.sentence for figure in shown))
        self.query_one("#savings-line", PlainText).update(savings_line(plan, banked, no_advice))
