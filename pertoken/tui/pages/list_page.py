"""A screen with tables: filter, sort, and opening rows."""

from collections.abc import Callable, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import DataTable, Input

from pertoken.tui.pages.page import Page
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.source import View
from pertoken.tui.text.columns import table
from pertoken.tui.text.sheet import Sheet
from pertoken.tui.text.table.matching import nothing_matches
from pertoken.tui.text.words import literal_lines
from pertoken.tui.widgets.filter_box import FilterBox
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.tui.widgets.rows import Rows
from pertoken.tui.widgets.stack import Stack

_NO_SORT = "There is no row to sort."


class ListPage(Page):
    """Tables with a filter above the footer."""

    def body(self) -> ComposeResult:
        """What the page is before its first reading, its lists, and the filter."""
        yield PlainText(id="waiting")
        with Vertical(id="lists"):
            yield from self.lists()
        yield PlainText(id="no-match")
        yield FilterBox()

    def lists(self) -> ComposeResult:
        """The tables and what stands beside them."""
        yield from ()

    def show(self, view: View) -> None:
        """Show the lists once there is anything to show."""
        part = self.part(view)
        there = part.value is not None
        waiting = self.query_one("#waiting", PlainText)
        waiting.display = not there
        waiting.update(self.waiting(view))
        self.query_one("#lists", Vertical).display = there
        if there:
            self.fill(view)
            self._settle()
            if self.focused is None:
                self._focus_rows()

    def shows_banner(self, view: View) -> bool:
        """Return whether a banner stands above the page; one that was never filled holds the error itself."""
        part = self.part(view)
        return super().shows_banner(view) and not (part.value is None and part.error is not None)

    def waiting(self, view: View) -> str:
        """Return what stands here before the first reading, or why it failed."""
        error = self.part(view).error
        if error is None:
            return "Reading the database…"
        again = "It is tried again all the time" if self.late_s is not None else "r tries again"
        return "\n".join(
            ("Nothing could be read yet:", *literal_lines(error), "", f"{again}; this page fills once it works.")
        )

    def fill(self, view: View) -> None:
        """Fill the tables from a view that has their part."""

    def lines_of(self, table: str, view: View) -> Sequence[Any]:
        """The lines of the table with this id."""
        return ()

    def details(self, line: Any, view: View) -> Sheet:
        """All that is known of a line."""
        return ()

    def rows(self) -> Rows[Any] | None:
        """The table that has the keys, or the first with rows."""
        shown = [widget for widget in self.focus_chain if isinstance(widget, Rows)]
        ordered = sorted(shown, key=lambda table: table is not self.focused)
        return next((table for table in ordered if table.matched), None)

    def cannot(self, action: str) -> str | None:
        """Tables may be empty."""
        rows = self.rows()
        if action in ("open", "sort", "columns") and (rows is None or rows.selected is None):
            return f"There is no row to {'open' if action == 'open' else 'show'}." if action != "sort" else _NO_SORT
        if action == "reverse" and (rows is None or not rows.is_sorted):
            return "Nothing is sorted yet: o sorts by the first column."
        if action == "back" and not self.query_one(FilterBox).display:
            return "There is nothing to go back to: 1 to 4 and h change screens, q quits."
        return super().cannot(action)

    def open(self) -> None:
        """Open the details of the row under the cursor."""
        rows = self.rows()
        if rows is None or rows.selected is None:
            return
        table, key = rows, rows.key(rows.selected)

        def line(view: View) -> Any:
            return next((line for line in self.lines_of(table.id or "", view) if table.key(line) == key), None)

        self.app.push_screen(self.page_of(line))

    def page_of(self, line: Callable[[View], Any]) -> Page:
        """Return the page of a line, which is None once it is gone."""

        def sheet(view: View) -> Sheet | None:
            found = line(view)
            return None if found is None else self.details(found, view)

        return SheetPage(self.view, self.heading, sheet, self.part, self.windowed, self.late_s)

    def back(self) -> None:
        """Drop the filter."""
        self.query_one(FilterBox).drop()
        self._focus_rows()

    def next(self) -> None:
        """Give the keys to the next table."""
        self.focus_next()

    def filter(self) -> None:
        """Type a filter."""
        self.query_one(FilterBox).open()

    def sort(self) -> None:
        """Sort by the next column."""
        if rows := self.rows():
            rows.sort_next()

    def reverse(self) -> None:
        """Turn the order around."""
        if rows := self.rows():
            rows.reverse()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a row by `enter` or a click."""
        event.stop()
        reason = self.cannot("open")
        if reason is None:
            self.open()
        else:
            self.app.notify(reason, markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter as it is typed."""
        if not isinstance(event.input, FilterBox):
            return
        for rows in self.query(Rows):
            rows.filter_by(event.value)
        self._settle()

    def on_filter_box_left(self) -> None:
        """Give the keys back to the rows."""
        self._focus_rows()

    def _settle(self) -> None:
        """Share the height among the tables, and report a filter that no row passes."""
        for stack in self.query(Stack):
            stack.settle()
        tables = [widget for widget in self.focus_chain if isinstance(widget, Rows)]
        words = self.query_one(FilterBox).value.strip().strip("!~").strip()
        note = self.query_one("#no-match", PlainText)
        note.display = bool(words and tables and not any(table.matched for table in tables))
        note.update(nothing_matches(self.query_one(FilterBox).value))

    def give_back_keys(self) -> None:
        """Give the keys back to the rows."""
        self._focus_rows()

    def is_drawn(self) -> bool:
        """Return whether the tables have their rows."""
        tables = [rows for rows in self.query(Rows) if rows.display and rows.matched]
        return all(rows.row_count for rows in tables)

    def top(self) -> None:
        """Go to the first row."""
        if rows := self.rows():
            rows.move_cursor(row=0)

    def bottom(self) -> None:
        """Go to the last row; more rows are made until it is there."""
        if rows := self.rows():
            rows.go_to_end()

    def down(self) -> None:
        """Go one row down."""
        if rows := self.rows():
            rows.action_cursor_down()

    def up(self) -> None:
        """Go one row up."""
        if rows := self.rows():
            rows.action_cursor_up()

    def as_text(self) -> str:
        """Return every row and column that a filter keeps."""
        lines = [self.heading]
        for rows in self.query(Rows):
            if rows.matched:
                lines += ["", *table("", rows.matched, rows.columns_known, None)[1:]]
        return "\n".join(lines) + "\n"

    def _focus_rows(self) -> None:
        if rows := self.rows():
            rows.focus()
