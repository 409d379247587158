"""Plot of one panel over a window. This module loads plotext: import it only to show a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual_plotext import PlotextPlot

from pertoken.tui.text.course.plots import Panel, runs, ticks
from pertoken.tui.widgets.plain_text import PlainText

if TYPE_CHECKING:
    from pertoken.window.course.course import Course

_MARKERS = ("hd", "·", "x")
"""Markers in plotext that look like `plots.MARKERS`."""
_COLOURS = {True: ("green+", "orange+", "cyan+"), False: ("green", "red", "blue")}
"""Colours of the lines; the key is whether the background is dark."""
_MARK_COLOUR = "magenta"
_LEVEL_COLOUR = "red+"


class _Drawing(PlotextPlot):
    """The axes and lines of a panel."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: tuple[Panel, Course] | None = None

    def render(self) -> Text:
        """Draw at the present size; the width limits the number of times under the plot."""
        if self.drawn is None or self.size.width < 8 or self.size.height < 3:
            return Text()
        panel, course = self.drawn
        plot = self.plt
        plot.clear_figure()
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
        times = ticks(course, self.size.width)
        plot.xticks([i for i, _ in times], [label for _, label in times])
        plot.yfrequency(3)
        rendered = super().render()
        assert isinstance(rendered, Text)
        return rendered


class CoursePlot(Vertical):
    """A caption with the newest values, and the plot under it."""

    def compose(self) -> ComposeResult:
        """Yield caption and drawing."""
        yield PlainText(classes="caption")
        yield _Drawing()

    def show(self, panel: Panel | None, course: Course) -> None:
        """Show a panel; None hides the plot."""
        self.display = panel is not None
        if panel is None:
            return
        self.query_one(PlainText).update(panel.caption)
        drawing = self.query_one(_Drawing)
        if drawing.drawn != (panel, course):
            drawing.drawn = panel, course
            drawing.refresh()
