"""A table of lines that fits its width, keeps its cursor, and can be filtered and sorted."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import ClassVar, Generic

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.widgets import DataTable
from textual.widgets.data_table import RowDoesNotExist

from pertoken.tui.amounts import caption
from pertoken.tui.text.columns import GAP, Column, L, arranged, cut, fit, matching

_SCROLLBAR = 1
PAGE = 100
"""Rows that are made at first, and each time the cursor comes to the last one."""


class Rows(DataTable[Text], Generic[L], inherit_bindings=False):
    """Lines of one kind. `key` names a line across readings. `enter` is left to the page."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--stale"}
    BINDINGS = [each for each in DataTable.BINDINGS if isinstance(each, Binding) and each.key != "enter"]  # noqa: RUF012

    def __init__(self, key: Callable[[L], Hashable], id: str, spare: bool = False) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=GAP // 2)
        self.key = key
        self.spare = spare
        """Whether it stays away where not every table has all its rows."""
        self._all: Sequence[L] = ()
        self._kinds: Sequence[Column[L]] = ()
        self._dim: Callable[[L], bool] = lambda _: False
        self._words = ""
        self._by: str | None = None
        self._turned = False
        self._layout: tuple[object, ...] = ()
        self.matched: Sequence[L] = ()
        """Lines that pass the filter, in the order shown; the first `_most` of them have rows."""
        self._most = PAGE

    @property
    def wanted_height(self) -> int:
        """Lines it takes to show every row, the header included; 0 without lines."""
        return len(self.matched) + 1 if self._all else 0

    @property
    def selected(self) -> L | None:
        """The line under the cursor."""
        return self.matched[self.cursor_row] if 0 <= self.cursor_row < len(self.matched) else None

    def show(self, lines: Sequence[L], columns: Sequence[Column[L]], dim: Callable[[L], bool]) -> None:
        """Show these lines from now on; those that `dim` names are stale."""
        self._all, self._kinds, self._dim = lines, columns, dim
        self._lay_out()

    def filter_by(self, words: str) -> None:
        """Keep the lines that hold every word."""
        self._words, self._most = words, PAGE
        self._lay_out()

    def sort_next(self) -> None:
        """Sort by the next column shown, then by none again."""
        names = [self._kinds[i].name for i in self._widths()]
        at = names.index(self._by) + 1 if self._by in names else 0
        self._by, self._turned = (names[at] if at < len(names) else None), False
        self._lay_out()

    @property
    def is_sorted(self) -> bool:
        """Whether a column was chosen to sort by."""
        return self._by is not None

    def reverse(self) -> None:
        """Turn the sorted column around."""
        self._turned = not self._turned
        self._lay_out()

    def on_resize(self, _: events.Resize) -> None:
        """Fit the columns to the new width."""
        self._lay_out()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Make more rows where the cursor has come to the last."""
        if self._most <= event.cursor_row + 1 < len(self.matched):
            self._most += PAGE
            self._lay_out()

    def _cells(self) -> list[list[str]]:
        return [[column.text(line) for column in self._kinds] for line in self.matched[: self._most]]

    def _marked(self) -> list[Column[L]]:
        """The columns, an arrow at the one that is sorted by."""
        arrows = {column.name: "▲" if (column.order is None) != self._turned else "▼" for column in self._kinds}
        return [
            replace(column, name=column.name + arrows[column.name]) if column.name == self._by else column
            for column in self._kinds
        ]

    def _widths(self) -> dict[int, int]:
        return fit(self._cells(), self._marked(), self.size.width - _SCROLLBAR)

    def _lay_out(self) -> None:
        self.matched = arranged(matching(self._all, self._kinds, self._words), self._kinds, self._by, self._turned)
        if not self.size.width:
            return  # its first resize lays it out
        shown = self.matched[: self._most]
        widths, cells, keys = self._widths(), self._cells(), [str(self.key(line)) for line in shown]
        self._widen(widths, cells, shown)
        layout = (tuple(widths.items()), tuple(keys), self._by, self._turned)
        if layout != self._layout:
            self._rebuild(widths, keys)
            self._layout = layout
        stale = Style(color=self.get_component_rich_style("rows--stale").color)
        texts = {i: cut([row[i] for row in cells], width, self._kinds[i]) for i, width in widths.items()}
        for n, (line, key) in enumerate(zip(shown, keys, strict=True)):
            style = stale if self._dim(line) else ""
            for i in widths:
                cell = Text(texts[i][n], style)
                if cell != self.get_cell(key, str(i)) or cell.style != self.get_cell(key, str(i)).style:
                    self.update_cell(key, str(i), cell)

    def _widen(self, widths: dict[int, int], cells: list[list[str]], shown: Sequence[L]) -> None:
        """Give the cells that are left over to the first column that can use them."""
        at = next((i for i in widths if self._kinds[i].wide is not None), None)
        left = self.size.width - _SCROLLBAR - sum(widths.values()) - GAP * len(widths)
        wide = None if at is None else self._kinds[at].wide
        if at is None or wide is None or left <= 0 or not any(row[at] for row in cells):
            return
        widths[at] += left
        for row, line in zip(cells, shown, strict=True):
            row[at] = wide(line, widths[at]) if row[at] else ""

    def _rebuild(self, widths: dict[int, int], keys: list[str]) -> None:
        """New columns and empty rows; the cursor stays on its line where that is still there."""
        at = self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value if self.row_count else None
        scrolled = self.scroll_y
        self.clear(columns=True)
        columns = self._marked()
        for i, width in widths.items():
            self.add_column(Text(*cut([caption(columns[i].name)], width, columns[i])), width=width, key=str(i))
        for key in keys:
            self.add_row(*(Text("") for _ in widths), key=key)
        if at is not None:
            try:
                self.move_cursor(row=self.get_row_index(at), scroll=False)
            except RowDoesNotExist:
                return
            self.scroll_to(y=scrolled, animate=False)
