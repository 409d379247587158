"""Tables of lines: a scrolled list with a cursor, and rows that fit its width, can be filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pertoken.text.amounts import caption
from pertoken.text.columns import GAP, Column, L, arranged, cut, fit, matching, searched
from pertoken.tui.options import ArrangedTable, Remembered

HEADER = 1
"""Height of the header, which does not scroll."""

Line = tuple[str, bool]
"""Text of a line, which fits the width, and whether it is drawn as stale."""


class CursorLines(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines with a cursor that keys, the wheel and clicks move. `enter` is left to the page."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--header", "rows--cursor", "rows--stale"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", show=False),
        Binding("down", "cursor_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("ctrl+home", "first", show=False),
        Binding("ctrl+end", "last", show=False),
    ]

    cursor_row: reactive[int] = reactive(0, repaint=False)

    class Chosen(Message):
        """A person clicked a line, which has the cursor now."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._header = ""
        self._lines: Sequence[Line] = ()

    @property
    def row_count(self) -> int:
        """Number of lines that are made."""
        return len(self._lines)

    def line_at(self, row: int) -> Line:
        """Return a line."""
        return self._lines[row]

    def replace_lines(self, header: str, lines: Sequence[Line], cursor_row: int) -> None:
        """Show other lines and draw those that differ. The cursor goes to `cursor_row`; the scrolled offset stays."""
        previous, self._lines = self._lines, lines
        if len(lines) != len(previous):
            self.virtual_size = Size(1, len(lines) + HEADER)
            self.refresh()
        else:
            for row, (old, new) in enumerate(zip(previous, lines, strict=True)):
                if old != new:
                    self.refresh_line(row + HEADER)
        if header != self._header:
            self._header = header
            self.refresh(Region(0, 0, max(1, self.size.width), HEADER))
        self.cursor_row = cursor_row

    def validate_cursor_row(self, row: int) -> int:
        """Keep the cursor on a line."""
        return max(0, min(row, len(self._lines) - 1))

    def watch_cursor_row(self, previous_row: int, row: int) -> None:
        """Draw the lines that the cursor left and came to, and scroll to it."""
        self.refresh_line(previous_row + HEADER)
        self.refresh_line(row + HEADER)
        self.show_cursor()

    def move_cursor(self, row: int) -> None:
        """Put the cursor on a line and scroll to it."""
        self.cursor_row = row
        self.show_cursor()

    def show_cursor(self) -> None:
        """Scroll to the line with the cursor."""
        if self.size.height > HEADER:
            line = Region(0, self.cursor_row + HEADER, 1, 1)
            self.scroll_to_region(line, animate=False, spacing=Spacing(top=HEADER), force=True)

    @property
    def _page(self) -> int:
        return max(1, self.size.height - HEADER)

    def action_cursor_up(self) -> None:
        """Go a line up."""
        self.move_cursor(self.cursor_row - 1)

    def action_cursor_down(self) -> None:
        """Go a line down."""
        self.move_cursor(self.cursor_row + 1)

    def action_page_up(self) -> None:
        """Go a page up."""
        self.scroll_relative(y=-self._page, animate=False, force=True)
        self.cursor_row -= self._page

    def action_page_down(self) -> None:
        """Go a page down."""
        self.scroll_relative(y=self._page, animate=False, force=True)
        self.cursor_row += self._page

    def action_first(self) -> None:
        """Go to the first line."""
        self.move_cursor(0)

    def action_last(self) -> None:
        """Go to the last line that is made."""
        self.move_cursor(len(self._lines) - 1)

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen: the header, or the line that is scrolled there."""
        row = y - HEADER + self.scroll_offset.y
        usual = self.rich_style
        if y < HEADER:
            return self._strip(self._header, self.get_component_rich_style("rows--header"))
        if row >= len(self._lines):
            return Strip.blank(self.size.width, usual)
        text, stale = self._lines[row]
        if row == self.cursor_row:
            return self._strip(text, self.get_component_rich_style("rows--cursor"))
        late = Style.from_color(self.get_component_rich_style("rows--stale").color) if stale else None
        return self._strip(text, usual + late)

    def _strip(self, text: str, style: Style) -> Strip:
        return Strip([Segment(text, style)]).adjust_cell_length(self.size.width, style)


_SCROLLBAR = 1
AHEAD = 8
"""Rows that are made below the visible ones."""
PAGE = 60
"""Rows that are made each time the last one is reached."""


class Rows(CursorLines, Generic[L]):
    """Table of lines. `key` identifies a line across readings."""

    @dataclass
    class Arranged(Message):
        """A person sorted the table, or hid or showed a column."""

        table: str
        arrangement: ArrangedTable

    def __init__(self, key: Callable[[L], Hashable], id: str, spare: bool = False) -> None:
        super().__init__(id)
        self.key = key
        self.spare = spare
        """Whether the table is hidden unless all tables of the page fit."""
        self._all: Sequence[L] = ()
        self.columns_known: Sequence[Column[L]] = ()
        """Every column, hidden ones included."""
        self._kinds: Sequence[Column[L]] = ()
        self.arrangement = ArrangedTable()
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
        """Restore the remembered columns and order; a page may have filled the table before."""
        remembered: Remembered = getattr(self.app, "remembered", Remembered())
        arrangement = remembered.tables.get(self.id or "")
        if arrangement is not None:
            self.arrangement = arrangement
            self._choose_columns()
            self._lay_out()

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

    def _arrange(self, arrangement: ArrangedTable) -> None:
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

    def watch_cursor_row(self, previous_row: int, row: int) -> None:
        """Make more rows if the cursor has reached the last."""
        super().watch_cursor_row(previous_row, row)
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
        cursor_key = self._keys[self.cursor_row] if self.cursor_row < len(self._keys) else None
        self._keys = keys
        stays = cursor_key is not None and cursor_key in keys
        self.replace_lines(header, lines, keys.index(cursor_key) if stays else 0)
        if not stays:
            self.scroll_to(y=0, animate=False)

    def _widen(self, widths: dict[int, int], cells: list[list[str]], shown: Sequence[L], width: int) -> None:
        """Give left-over cells to the first column that has a wide form."""
        wide_column = next((i for i in widths if self._kinds[i].wide is not None), None)
        free_cells = width - _SCROLLBAR - sum(widths.values()) - GAP * len(widths)
        wide = None if wide_column is None else self._kinds[wide_column].wide
        if wide_column is None or wide is None or free_cells <= 0 or not any(row[wide_column] for row in cells):
            return
        widths[wide_column] += free_cells
        for row, line in zip(cells, shown, strict=True):
            row[wide_column] = wide(line, widths[wide_column]) if row[wide_column] else ""


def _line(cells: Sequence[str]) -> str:
    pad = " " * (GAP // 2)
    return "".join(f"{pad}{cell}{pad}" for cell in cells)
