"""The figures a person looks for first, large where there is room."""

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Digits, Static

from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.headline import figures

_FIGURES = 4


class Headline(Vertical):
    """Four figures: large digits with captions, or one paragraph on a small screen (by CSS)."""

    def compose(self) -> ComposeResult:
        """One large figure each, and the paragraph."""
        with Horizontal(classes="large"):
            for _ in range(_FIGURES):
                with Vertical():
                    yield Digits("")
                    yield Static(markup=False)
        yield Static(classes="small", markup=False)

    def show(self, report: FleetReport) -> None:
        """Show the figures of a report."""
        found = figures(report)
        captions = self.query(".large Static").results(Static)
        for figure, digits, caption in zip(found, self.query(Digits), captions, strict=True):
            digits.update(figure.value)
            caption.update(figure.caption)
        self.query_one(".small", Static).update(" · ".join(figure.sentence for figure in found))
