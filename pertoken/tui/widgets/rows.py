"""Table of lines that fits its width, keeps its cursor, and can be filtered and sorted."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Generic

from textual import events
from textual.message import Message

from pertoken.text.amounts import caption
from pertoken.text.columns import GAP, Column, L, arranged, cut, fit, matching, searched
from pertoken.tui.remembered import Remembered, Table
from pertoken.tui.widgets.cursor_lines import HEADER, CursorLines, Line

_SCROLLBAR = 1
AHEAD = 8
"""Rows that are made below the visible ones."""
PAGE = 60
"""Rows that are made each time the last one is reached."""


class Rows(CursorLines, Generic[L]):
    """Table of lines. `key` identifies a line across readings."""

    class Arranged(Message):
        """A person sorted the table, or hid or showed a column."""

        def __init__(self, table: str, arrangement: Table) -> None:
            super().__init__()
            self.table = table
            self.arrangement = arrangement

    def __init__(self, key: Callable[[L], Hashable], id: str, spare: bool = False) -> None:
        super().__init__(id)
        self.key = key
        self.spare = spare
        """Whether the table is hidden unless all tables of the page fit."""
        self._all: Sequence[L] = ()
        self.columns_known: Sequence[Column[L]] = ()
        """Every column, hidden ones included."""
        self._kinds: Sequence[Column[L]] = ()
        self.arrangement = Table()
        self._dim: Callable[[L], bool] = lambda _: False
        self._words = ""
        self._searched: Sequence[Sequence[str]] | None = None
        """Cells of all lines as the filter reads them; None until a filter is typed."""
        self._keys: Sequence[Hashable] = ()
        """Identities of the lines that are made."""
        self._widths: dict[int, int] = {}
        """Width in cells of each column that is shown, by its index in `_kinds`."""
        self.matched: Sequence[L] = ()
        """Lines that pass the filter, in the order shown; the first `_row_limit` lines have rows."""
        self._row_limit = 0
        self.shown_lines: int | None = None
        """Lines that the layout gave the table; 0: it is hidden. None: it was not laid out since it got lines."""
        self._laid_out_width = 0
        self._shown_columns: tuple[str, ...] = ()

    def allow_focus(self) -> bool:
        """Return whether the table can have the focus: an empty or hidden one cannot."""
        return super().allow_focus() and bool(self._all) and self.shown_lines != 0

    @property
    def count(self) -> int:
        """Number of lines, those that a filter leaves out included."""
        return len(self._all)

    @property
    def wanted_height(self) -> int:
        """Height that shows every row, the header included; 0 without lines."""
        return len(self.matched) + 1 if self._all else 0

    @property
    def selected(self) -> L | None:
        """The line under the cursor; None without rows."""
        return self.matched[self.cursor_row] if 0 <= self.cursor_row < len(self.matched) else None

    def on_mount(self) -> None:
        """Restore the remembered columns and order."""
        remembered = getattr(self.app, "remembered", Remembered())
        self.arrangement = remembered.tables.get(self.id or "", Table())

    def show(self, lines: Sequence[L], columns: Sequence[Column[L]], dim: Callable[[L], bool]) -> None:
        """Show these lines; those for which `dim` returns True are drawn as stale."""
        if not self._all:
            self.shown_lines = None
        self._all, self.columns_known, self._dim, self._searched = lines, columns, dim, None
        self._choose_columns()
        self._lay_out()

    def _choose_columns(self) -> None:
        first, hidden = self.columns_known[:1], self.arrangement.hidden
        self._kinds = (*first, *(column for column in self.columns_known[1:] if column.key not in hidden))

    @property
    def shown_columns(self) -> tuple[str, ...]:
        """Keys of the columns that fit."""
        return self._shown_columns

    def toggle(self, key: str) -> None:
        """Hide a column, or show it again."""
        hidden = tuple(name for name in self.arrangement.hidden if name != key)
        if len(hidden) == len(self.arrangement.hidden):
            hidden = (*hidden, key)
        self._arrange(replace(self.arrangement, hidden=hidden))

    def _arrange(self, arrangement: Table) -> None:
        at_top = self.cursor_row == 0
        self.arrangement = arrangement
        self.post_message(self.Arranged(self.id or "", arrangement))
        self._choose_columns()
        self._lay_out()
        if at_top:  # no row was selected: show the first in the new order
            self.move_cursor(0)

    def filter_by(self, words: str) -> None:
        """Show the lines that pass a filter; see `matching`."""
        self._words, self._row_limit = words, 0
        self._lay_out()

    def sort_next(self) -> None:
        """Sort by the next column; after the last, restore the original order."""
        names, by = self.shown_columns, self.arrangement.by
        index = names.index(by) + 1 if by in names else 0
        by = names[index] if index < len(names) else None
        self._arrange(replace(self.arrangement, by=by, turned=False))

    @property
    def is_sorted(self) -> bool:
        """Whether a column was chosen to sort by."""
        return self.arrangement.by is not None

    def reverse(self) -> None:
        """Reverse the order."""
        self._arrange(replace(self.arrangement, turned=not self.arrangement.turned))

    def on_click(self, event: events.Click) -> None:
        """Open a clicked row, or sort by a clicked header; a second click reverses the order."""
        row = event.y - HEADER + self.scroll_offset.y
        if event.y >= HEADER and row >= self.row_count:
            return
        event.stop()
        self.focus()
        if event.y >= HEADER:
            self.cursor_row = row
            self.post_message(self.Chosen())
            return
        end = 0
        for i, width in self._widths.items():
            end += width + GAP
            if event.x < end:
                self._sort_by(self._kinds[i].key)
                return

    def _sort_by(self, key: str) -> None:
        turned = key == self.arrangement.by and not self.arrangement.turned
        self._arrange(replace(self.arrangement, by=key, turned=turned))

    def go_to_end(self) -> None:
        """Put the cursor on the last line."""
        self._row_limit = max(self._row_limit, len(self.matched))
        self._lay_out()
        self.move_cursor(len(self.matched) - 1)

    def on_resize(self, event: events.Resize) -> None:
        """Fit the columns to the new width, add rows for the new height, and keep the cursor in view."""
        if event.size.width != self._laid_out_width or self._has_more_rows(event.size.height):
            self._lay_out()
        self.show_cursor()

    def watch_cursor_row(self, before: int, row: int) -> None:
        """Make more rows if the cursor has reached the last."""
        super().watch_cursor_row(before, row)
        self._make_more(row + 1)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Make more rows if scrolling has reached the last."""
        super().watch_scroll_y(old_value, new_value)
        self._make_more(int(new_value) + self.size.height)

    def _make_more(self, reached: int) -> None:
        if 0 < self._row_limit <= reached and self._row_limit < len(self.matched):
            self._row_limit += PAGE
            self._lay_out()

    def _has_more_rows(self, height: int) -> bool:
        """Return whether `height` would show lines that have no rows yet."""
        return min(height, len(self.matched)) > self.row_count

    def _marked(self) -> list[Column[L]]:
        """Return the columns, with an arrow on the sort column."""
        by, turned = self.arrangement.by, self.arrangement.turned
        return [
            replace(column, name=column.name + ("▲" if (column.order is None) != turned else "▼"))
            if column.key == by
            else column
            for column in self._kinds
        ]

    def _cells(self, shown: Sequence[L]) -> list[list[str]]:
        return [[column.text(line) for column in self._kinds] for line in shown]

    def _lay_out(self) -> None:
        """Filter and sort the lines, choose columns and widths, and draw only what differs from the last layout."""
        by, turned = self.arrangement.by, self.arrangement.turned
        if self._words.strip() and self._searched is None:
            self._searched = searched(self._all, self.columns_known)
        passed = matching(self._all, self.columns_known, self._words, self._searched)
        self.matched = arranged(passed, self.columns_known, by, turned)
        laid_out = self.size.width > 0  # before its first layout it expects a half of the screen
        width, height = self.size if laid_out else (self.app.size.width, self.app.size.height // 2)
        self._row_limit = max(self._row_limit, height + AHEAD)
        shown = self.matched[: self._row_limit]
        cells, columns = self._cells(shown), self._marked()
        widths = fit(cells, columns, width - _SCROLLBAR)
        self._laid_out_width, self._shown_columns = width, tuple(self._kinds[i].key for i in widths)
        self._widths = widths
        self._widen(widths, cells, shown, width)
        names = [cut([caption(columns[i].name)], width, columns[i]) for i, width in widths.items()]
        texts = [cut([row[i] for row in cells], width, self._kinds[i]) for i, width in widths.items()]
        lines = [(_line([column[n] for column in texts]), self._dim(line)) for n, line in enumerate(shown)]
        self._replace(_line([name for (name,) in names]), lines, [self.key(line) for line in shown])

    def _replace(self, header: str, lines: Sequence[Line], keys: Sequence[Hashable]) -> None:
        """Draw these lines; the cursor stays on its line if that still exists, else it goes to the first."""
        at = self._keys[self.cursor_row] if self.cursor_row < len(self._keys) else None
        self._keys = keys
        stays = at is not None and at in keys
        self.replace_lines(header, lines, keys.index(at) if stays else 0)
        if not stays:
            self.scroll_to(y=0, animate=False)

    def _widen(self, widths: dict[int, int], cells: list[list[str]], shown: Sequence[L], width: int) -> None:
        """Give left-over cells to the first column that has a wide form."""
        at = next((i for i in widths if self._kinds[i].wide is not None), None)
        left = width - _SCROLLBAR - sum(widths.values()) - GAP * len(widths)
        wide = None if at is None else self._kinds[at].wide
        if at is None or wide is None or left <= 0 or not any(row[at] for row in cells):
            return
        widths[at] += left
        for row, line in zip(cells, shown, strict=True):
            row[at] = wide(line, widths[at]) if row[at] else ""


def _line(cells: Sequence[str]) -> str:
    pad = " " * (GAP // 2)
    return "".join(f"{pad}{cell}{pad}" for cell in cells)
