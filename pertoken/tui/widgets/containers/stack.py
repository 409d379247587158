"""Tables above one another that share one height, and a chart in what they leave free."""

from collections.abc import Sequence
from typing import Any

from textual.containers import Vertical
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.strip import Strip
from textual.widget import Widget

from pertoken.tui.widgets.chart import Chart
from pertoken.tui.widgets.containers.ground import ground
from pertoken.tui.widgets.rows import Rows

_MIN_LINES = 2
"""Fewest lines of a table that is shown: its header and a row."""


def shares(wanted: Sequence[int], height: int) -> list[int]:
    """Return the lines of each table: what it wants, or an equal share of what is left.

    If a share would be under two lines, the last tables get none.
    """
    given = [0] * len(wanted)
    unserved = [i for i, lines in enumerate(wanted) if lines]
    while unserved and height // len(unserved) < _MIN_LINES:
        unserved.pop()
    while unserved:
        fair = height // len(unserved)
        content = [i for i in unserved if wanted[i] <= fair]
        for i in content or unserved[:1]:
            given[i] = min(wanted[i], height - fair * (len(unserved) - 1))
            height -= given[i]
            unserved.remove(i)
    return given


class _Shared(Layout):
    """Gives each table its share of the height, in one pass: no table is laid out before its height is known."""

    name = "shared"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        parent.pre_layout(self)
        tables = [child for child in children if isinstance(child, Rows)]
        wanted = [table.wanted_height for table in tables]
        if sum(wanted) > size.height:
            wanted = [0 if table.spare else lines for table, lines in zip(tables, wanted, strict=True)]
        placements, y = [], 0
        for table, lines in zip(tables, shares(wanted, size.height), strict=True):
            table.shown_lines = lines
            if table.has_focus and not lines:
                parent.call_after_refresh(_focus_another, table, tables)
            if lines:
                placements.append(_placed(table, Region(0, y, size.width, lines)))
                y += lines
        for widget in children:
            if isinstance(widget, Chart) and (lines := widget.lines_of(size.height - y)):
                placements.append(_placed(widget, Region(0, size.height - lines, size.width, lines)))
        return placements


def _focus_another(hidden: Rows[Any], tables: Sequence[Rows[Any]]) -> None:
    """Move the focus from a table that is hidden to one that is shown."""
    if hidden.has_focus and not hidden.shown_lines:
        hidden.screen.set_focus(next((table for table in tables if table.shown_lines), None))


def _placed(widget: Widget, region: Region) -> WidgetPlacement:
    return WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, widget)


class Stack(Vertical):
    """Container that shares its height among its tables."""

    def __init__(self) -> None:
        super().__init__()
        self._shared = _Shared()
        self._settled: Sequence[int] = ()

    @property
    def layout(self) -> Layout:
        """Layout that shares the height."""
        return self._shared

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region."""
        return ground(self, crop)

    def settle(self) -> None:
        """Share the height again; call it when the number of rows has changed."""
        most = self.size.height + 1  # more rows than fit make no difference
        wanted = [min(table.wanted_height, most) for table in self.query(Rows)]
        if wanted != self._settled:
            self._settled = wanted
            self.refresh(layout=True)
