"""Figures at the top of a page: the bill with its bar, large figures, the lane of events, and notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.renderables.digits import Digits
from textual.widget import Widget

from pertoken.costs.ledger import BillTotal
from pertoken.text.costs import GLYPHS, PARTS, bar_cells, bill_sentence
from pertoken.text.fleet import ShownFigure, figures, savings_line
from pertoken.text.replay import lane, latest
from pertoken.tui.widgets.layout import PlainText

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.judging.receipts import Banked
    from pertoken.window.timeline import Timeline


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


_FIGURES = 4


class LargeFigures(Widget):
    """Figures side by side, each three lines high with its caption below."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"figures--digits", "figures--caption"}

    def __init__(self) -> None:
        super().__init__(classes="large")
        self.figures: Sequence[ShownFigure] = ()

    def show(self, shown: Sequence[ShownFigure]) -> None:
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
    texts = [segment.text for segment in Digits(text).render(Style()) if isinstance(segment, Segment)]
    return [line for line in texts if line != "\n"]


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


_PADDING = 2


class EventLane(PlainText):
    """Timeline as one line with the newest event below it, hidden while the present is shown."""

    _shown: tuple[Timeline, int, int, int] | None = None

    def show(self, timeline: Timeline | None, end_ts: int, shown_ts: int | None, window_s: int) -> None:
        """Show the instant `shown_ts` on the timeline; None, the present, hides it."""
        self.display = shown_ts is not None and timeline is not None
        if shown_ts is None or timeline is None:
            return
        self._shown = (timeline, end_ts, shown_ts, window_s)
        self._draw()

    def on_resize(self) -> None:
        """Draw the line over the new width."""
        self._draw()

    def _draw(self) -> None:
        if self._shown is not None:
            timeline, end_ts, shown_ts, window_s = self._shown
            line = lane(timeline, end_ts, shown_ts, self.app.size.width - _PADDING)
            self.update(f"{line}\n{latest(timeline, shown_ts, shown_ts - window_s)}")


_MORE = " …"


class Notices(VerticalScroll):
    """List of hints or events, as high as its `max-height` allows."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = PlainText()
        self._sentences: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """Yield the text."""
        yield self._text

    def show(self, lines: Sequence[str]) -> None:
        """Show these sentences; without any, the widget is hidden."""
        self._sentences = tuple(lines)
        self.set_class(not lines, "-empty")
        self._fit()

    def on_resize(self) -> None:
        """Cut the sentences again, for the new width."""
        self._fit()

    def _fit(self) -> None:
        text, width, most = "\n".join(self._sentences), self.content_size.width, self.styles.max_height
        if width > len(_MORE) and most is not None and most.cells:
            rows = [row.plain.rstrip() for row in Text(text).wrap(self.app.console, width)]
            if len(rows) > most.cells:
                last = rows[most.cells - 1]
                if cell_len(last) > width - len(_MORE):  # without its last word, or part of one that fills the row
                    last = last.rpartition(" ")[0] or set_cell_size(last, width - len(_MORE))
                text = "\n".join([*rows[: most.cells - 1], last.rstrip() + _MORE])
        self._text.update(text)
