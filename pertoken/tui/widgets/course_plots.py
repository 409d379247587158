"""Plots of all panels over a window. This module loads plotext: import it only to show plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotext as plot
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.color import Color
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from pertoken.text.course import Panel, runs, ticks
from pertoken.text.sheet import folded

if TYPE_CHECKING:
    from pertoken.window.course import Course

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
