"""Page of one host or service: its share of the bill, plots over one window, changes, and all facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import plotext as plot
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from pertoken.text.course import (
    MARKS_TITLE,
    Panel,
    advice_line,
    busy_line,
    dollar_lines,
    gap_lines,
    mark_lines,
    panels,
    proposals_for,
    runs,
    ticks,
    title_line,
    token_sentence,
)
from pertoken.text.sheet import Sheet, folded
from pertoken.tui.options import Options
from pertoken.tui.pages.page import SheetPage
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.layout import PlainText

if TYPE_CHECKING:
    from pertoken.costs.report.lines import DeploymentLine, HostUse
    from pertoken.proof.recommendation import Recommendation
    from pertoken.window.course import Course, Subject

    Line = DeploymentLine | HostUse


_READING = "Reading its history…"
_GONE = "It no longer exists: esc goes back."


class CoursePage(SheetPage):
    """Page of the `subject` that `about` set last. It is made once, because its widgets take as long as its figures."""

    FOOTER = (
        *("fleet", "savings", "open", "back", "narrow", "widen", "earlier", "later", "jump", "pager", "keys", "quit"),
    )

    WORDS: ClassVar[Mapping[str, str]] = {"open": "Advice"}

    class Opened(Message):
        """The page was opened: its history has to be read."""

    def __init__(self, view: Callable[[], ScreenView]) -> None:
        super().__init__(view, "Service", lambda _: None, lambda view: view.reading.fleet, windowed=True)
        self._line: Callable[[ScreenView], Line | None] = lambda _: None

    def about(
        self,
        heading: str,
        subject: Subject,
        sheet: Callable[[ScreenView], Sheet | None],
        line: Callable[[ScreenView], Line | None],
    ) -> None:
        """Set the subject.

        `sheet` returns its facts in a view, `line` its line of the fleet report; None: it is gone.
        """
        self.heading, self.subject, self._sheet, self._line = heading, subject, sheet, line
        for column in self.query(VerticalScroll):
            column.scroll_home(animate=False)

    def body(self) -> ComposeResult:
        """Yield dollars, plots, marks and facts in one column that scrolls."""
        with VerticalScroll():
            yield PlainText(id="subject")
            yield PlainText(id="dollars")
            yield CoursePlots()
            yield PlainText(id="marks")
            yield self._text

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Ask for the history of the subject if it is not known; all else is shown meanwhile."""
        if self.subject is not None and self._course(self.view()) is None:
            self.post_message(self.Opened())

    @property
    def _usd_per_kwh(self) -> float | None:
        options: Options = getattr(self.app, "options", Options())
        return options.usd_per_kwh

    def part(self, view: ScreenView) -> Read[object]:
        """Return the reading of the history; until it arrives, that of the fleet."""
        course = view.reading.course
        return view.reading.fleet if course.value is None and course.error is None else course

    def show(self, view: ScreenView) -> None:
        """Show the subject as the view has it."""
        sheet, line, course = self._sheet(view), self._line(view), self._course(view)
        title = self.query_one("#subject", PlainText)
        title.update(_GONE if line is None else title_line(line))
        report, notes, busy = view.reading.fleet.value, list[str](), None
        if line is not None:
            busy = busy_line(line, report)
            advice = advice_line(self._proposals(view))
            notes = [*dollar_lines(line, report), *filter(None, (busy, advice))]
        plotted: tuple[Panel, ...] = ()
        if course is None:
            notes.append(_READING)
        else:
            plotted, missing = panels(course, course.slo)
            notes += filter(None, [token_sentence(course, self._usd_per_kwh, split=busy is None)])
            notes += gap_lines(line, course, missing)
        self.query_one("#dollars", PlainText).update("\n".join(notes))
        self.query_one(CoursePlots).show(plotted, course)
        marks = self.query_one("#marks", PlainText)
        lines = () if course is None else mark_lines(course)
        marks.display = bool(lines)
        marks.update("\n".join((MARKS_TITLE, *lines)))
        self.draw(sheet or ())

    def _proposals(self, view: ScreenView) -> Sequence[Recommendation]:
        line = self._line(view)
        return () if line is None else proposals_for(line, view.reading.fleet.value, view.reading.advice.value or ())

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; its first proposal can be opened."""
        if action == "open":
            return None if self._proposals(self.view()) else "No proposal is open for it."
        return super().cannot(action)

    def open(self) -> None:
        """Open the page of the first proposal."""
        from pertoken.tui.pages.decision_page import AdvicePage, current_advice

        self.app.push_screen(AdvicePage(self.view, "Savings", current_advice(self._proposals(self.view())[0])))

    def as_text(self) -> str:
        """Return the dollars, the changes and all facts as text."""
        shown = (self.query_one(f"#{name}", PlainText) for name in ("subject", "dollars", "marks"))
        return "\n".join((*(str(text.content) for text in shown if text.display), "", super().as_text()))

    def _course(self, view: ScreenView) -> Course | None:
        """Return the history of this subject; None while the view has that of another page."""
        course = view.reading.course
        return course.value if course.query is not None and course.query.subject == self.subject else None


_MARKERS = ("hd", "·", "x")
"""Markers in plotext that look like `plots.MARKERS`."""
_COLOURS = {True: ("green+", "orange+", "cyan+"), False: ("green", "red", "blue")}
"""Colours of the lines; the key is whether the background is dark."""
_MARK_COLOUR = "magenta"
_LEVEL_COLOUR = "red+"
_GUTTER = 2
"""Cells between two plots beside each other."""
BROAD, SHORT = 110, 20
"""Width of a terminal from which two plots are beside each other, and height from which each has all its lines."""
_LINES, _FEW_LINES = 9, 7
"""Lines of a plot with its caption, on a usual and on a short terminal."""
_MIN_SIZE = Size(8, 3)


class CoursePlots(Widget):
    """Plots in one or two columns, each under a caption with the newest values.

    They are one widget, and a plot is drawn when it is scrolled into view: a widget for each took longer to lay out
    than the reading of the figures.
    """

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(id="plots")
        self._panels: Sequence[Panel] = ()
        self._course: Course | None = None
        self._blocks: dict[int, list[Strip]] = {}
        """Drawn plots, by their position."""
        self._drawn_for: tuple[object, ...] = ()
        """Sizes and theme that they were drawn for."""

    def show(self, panels: Sequence[Panel], course: Course | None) -> None:
        """Show these panels; without any, the widget is hidden."""
        self.display = bool(panels)
        if (course, panels) != (self._course, self._panels):
            changed = len(panels) != len(self._panels)
            self._panels, self._course = panels, course
            self._blocks.clear()
            self.refresh(layout=changed)

    @property
    def _columns(self) -> int:
        return 2 if self.app.size.width >= BROAD else 1

    @property
    def _block_height(self) -> int:
        return _LINES if self.app.size.height >= SHORT else _FEW_LINES

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines of all plots."""
        return -(-len(self._panels) // self._columns) * self._block_height

    def render_line(self, y: int) -> Strip:
        """Return one line: of one plot, or of two beside each other."""
        columns, height, width = self._columns, self._block_height, self.size.width
        drawn_for = (columns, height, width, self.app.theme)
        if drawn_for != self._drawn_for:
            self._blocks.clear()
            self._drawn_for = drawn_for
        row, line = divmod(y, height)
        first = width if columns == 1 else (width - _GUTTER) // 2
        widths = (first,) if columns == 1 else (first, width - _GUTTER - first)
        blank = Strip.blank(_GUTTER, self.rich_style)
        parts = [self._block(row * columns + n, Size(cells, height))[line] for n, cells in enumerate(widths)]
        return Strip.join([part for strip in parts for part in (strip, blank)][:-1])

    def _block(self, n: int, size: Size) -> list[Strip]:
        """Return the lines of a plot with its caption; blank ones after the last plot."""
        if n not in self._blocks:
            style = self.rich_style
            lines: list[Strip] = []
            if n < len(self._panels):
                caption = folded(self._panels[n].caption, size.width)[: size.height]
                lines = [Strip([Segment(text, style + Style(bold=True))]) for text in caption]
                lines += self._plotted(self._panels[n], Size(size.width, size.height - len(caption)))
            lines += [Strip([])] * (size.height - len(lines))
            self._blocks[n] = [line.adjust_cell_length(size.width, style) for line in lines]
        return self._blocks[n]

    def _plotted(self, panel: Panel, size: Size) -> list[Strip]:
        """Return the lines of a plot; the width limits the number of times under it."""
        course = self._course
        if course is None or size.width < _MIN_SIZE.width or size.height < _MIN_SIZE.height:
            return []
        plot.clear_figure()
        plot.limit_size(False, False)
        plot.plot_size(size.width, size.height)
        surface, foreground = (Color.parse(self.app.theme_variables[name]).rgb for name in ("surface", "foreground"))
        plot.canvas_color(surface)
        plot.axes_color(surface)
        plot.ticks_color(foreground)
        n = (course.end_ts - course.start_ts) // course.slice_s
        for line, marker, colour in zip(panel.lines, _MARKERS, _COLOURS[self.app.current_theme.dark], strict=False):
            for run in runs(line.values):
                xs, ys = [i for i, _ in run], [value for _, value in run]
                draw = plot.plot if len(run) > 1 else plot.scatter
                draw(xs, ys, marker=marker, color=colour)
        for _, level in panel.levels:
            plot.hline(level, _LEVEL_COLOUR)
        for mark in course.marks:
            if mark.kind != "event":
                plot.vline((mark.ts - course.start_ts) / course.slice_s, _MARK_COLOUR)
        plot.xlim(0, max(1, n - 1))
        plot.ylim(0, panel.highest * (1.0 if panel.top else 1.05))
        times = ticks(course, size.width)
        plot.xticks([i for i, _ in times], [label for _, label in times])
        plot.yfrequency(3)
        drawn = Text.from_ansi(plot.build())
        return [Strip(list(line.render(self.app.console))) for line in drawn.split("\n")][: size.height]
