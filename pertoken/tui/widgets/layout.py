"""Layout of pages: tables that share the height, charts, plain text and the line of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.containers import Vertical
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Static

from pertoken.text.fleet import MAX_HEIGHT, MIN_HEIGHT, chart
from pertoken.text.keys import Item, fitting, items
from pertoken.tui.widgets.table import Rows

_BLANK = 1
"""Lines left free between the tables and the chart."""


class Chart(Widget):
    """Bars over the whole width. `show` takes a function because the values are needed only if there is space."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._values: Callable[[], Sequence[float | None]] = tuple

    def show(self, values: Callable[[], Sequence[float | None]]) -> None:
        """Show these values, in the order of time; None is a gap."""
        self._values = cache(values)
        self.refresh()

    def lines_of(self, free: int) -> int:
        """Return the lines that it takes of `free` lines; 0 if they are too few or nothing is known."""
        lines = min(free - _BLANK, MAX_HEIGHT)
        return lines if lines >= MIN_HEIGHT and any(value is not None for value in self._values()) else 0

    def render(self) -> Text:
        """Return title and bars at the present size."""
        lines = chart(self._title, self._values(), max(1, self.size.width), self.size.height)
        return Text("\n".join(lines), no_wrap=True)


_MIN_LINES = 2
"""Fewest lines of a table that is shown: its header and a row."""


def shares(wanted: Sequence[int], height: int) -> list[int]:
    """Return the lines of each table: as many as it wants, or an equal share of the rest.

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


def _focus_another(hidden: Rows[object], tables: Sequence[Rows[object]]) -> None:
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

    def settle(self) -> None:
        """Share the height again; call it when the number of rows has changed."""
        most = self.size.height + 1  # more rows than fit make no difference
        wanted = [min(table.wanted_height, most) for table in self.query(Rows)]
        if wanted != self._settled:
            self._settled = wanted
            self.refresh(layout=True)


class PlainText(Static):
    """Text without markup. An update with the same text does nothing, because screens are updated at every refresh."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(markup=False, id=id, classes=classes)

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        """Show a text."""
        if not (isinstance(content, str) and content == self.content):
            super().update(content, layout=layout)


class KeyLine(Widget):
    """One line of keys; on a narrow screen the least important are left out."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-line--key"}

    def __init__(self) -> None:
        super().__init__()
        self.auto_links = False
        self._items: tuple[Item, ...] = ()

    def show(self, actions: Sequence[str], words: Mapping[str, str]) -> None:
        """Show the keys of these actions; `words` replaces words of the table of keys."""
        shown = items(actions, words)
        if shown != self._items:
            self._items = shown
            self.refresh()

    def render(self) -> Text:
        """Return the keys that fit."""
        text, key_style = Text(no_wrap=True, end=""), self.get_component_rich_style("key-line--key")
        for item in fitting(self._items, self.size.width):
            for action, label in zip(item.actions, item.labels, strict=True):
                text.append(label, key_style + _click(action))
            text.append(f" {item.word}", _click(item.actions[0]))
            text.append(" ")
        return text


def _click(action: str) -> Style:
    return Style(meta={"@click": f"app.act('{action}')"})
