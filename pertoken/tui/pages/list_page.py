"""Base of screens with tables: filter, sort, and pages of rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical

from pertoken.text.amounts import caption
from pertoken.text.columns import Column, L, kept, nothing_matches, table
from pertoken.text.keys import with_keys
from pertoken.text.sheet import Sheet
from pertoken.text.words import literal_lines
from pertoken.tui.pages.page import Page, SheetPage
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.boxes import FilterBox
from pertoken.tui.widgets.layout import PlainText, Stack
from pertoken.tui.widgets.table import CursorLines, Rows


class ListedTable(NamedTuple):
    """One table of a page."""

    key: Callable[[Any], Hashable]
    """Function that returns the identity of a line."""
    columns: Callable[[], Sequence[Column[Any]]]
    is_dim: Callable[[Any], bool] = lambda _: False


class ListPage(Page, Generic[L]):
    """Page with a text above tables, and an input line for a filter.

    Subclasses define `TABLES`, `head`, `lines_of` and `details`; those with more widgets define `lists` and `fill`.
    """

    TABLES: ClassVar[Mapping[str, ListedTable]] = {}
    """Tables by the id of their widget."""

    def body(self) -> ComposeResult:
        """Yield the text shown before the first reading, the tables, and the filter."""
        yield PlainText(id="waiting")
        with Vertical(id="lists"):
            yield from self.lists()
        yield PlainText(id="filter-note")
        yield FilterBox(self.filter_by)

    def lists(self) -> ComposeResult:
        """Yield the text and the tables, with the widgets around them."""
        yield PlainText(id="head")
        with Stack():
            for name, listed in self.TABLES.items():
                yield Rows[L](listed.key, name)

    def show(self, view: ScreenView) -> None:
        """Fill the tables from their part of the view; without a value, show why it is missing."""
        part = self.part(view)
        filled = part.value is not None
        waiting = self.query_one("#waiting", PlainText)
        waiting.display = not filled
        waiting.update(self.waiting(view))
        self.query_one("#lists").display = filled
        if filled:
            self.fill(view)
            self._divide_height()
            if self.focused is None:
                self._focus_rows()

    def shows_banner(self, view: ScreenView) -> bool:
        """Return whether a banner is shown; a page that was never filled shows its error instead of tables."""
        part = self.part(view)
        return super().shows_banner(view) and not (part.value is None and part.error is not None)

    def waiting(self, view: ScreenView) -> str:
        """Return the text shown before the first reading, or the error of a reading that failed."""
        error = self.part(view).error
        if error is None:
            return "Reading the database…"
        retry = "It is tried again at every refresh" if self.late_s is not None else with_keys("{reload} tries again")
        return "\n".join(
            ("Nothing could be read yet:", *literal_lines(error), "", f"{retry}; this page fills once it works.")
        )

    def fill(self, view: ScreenView) -> None:
        """Fill the text and the tables from a view in which `part` has a value."""
        self.query_one("#head", PlainText).update(self.head(view))
        for name, listed in self.TABLES.items():
            self.query_one(f"#{name}", Rows).show(self.lines_of(name, view), listed.columns(), listed.is_dim)

    def head(self, view: ScreenView) -> str:
        """Return the text above the tables."""
        return ""

    def lines_of(self, table: str, view: ScreenView) -> Sequence[L]:
        """Return the lines of a table, by the id of its widget."""
        return ()

    def details(self, line: L, view: ScreenView) -> Sheet:
        """Return the sheet of facts that the page of a line shows."""
        return ()

    def rows(self) -> Rows[L] | None:
        """Return the focused table if it has rows, else the first table with rows; None without any."""
        focused_first = sorted(self._tables(), key=lambda table: table is not self.focused)
        return next((table for table in focused_first if table.matched), None)

    @property
    def selected(self) -> L | None:
        """The selected line; None without rows."""
        rows = self.rows()
        return None if rows is None else rows.selected

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now, such as an empty table; None if it does something."""
        rows = self.rows()
        if action in ("open", "sort", "columns") and self.selected is None:
            return f"There is no row to {'show' if action == 'columns' else action}."
        if action == "reverse" and (rows is None or not rows.is_sorted):
            return with_keys("Nothing is sorted yet: {sort} sorts by the first column.")
        if action == "back" and not self.query_one(FilterBox).in_force:
            return with_keys(
                "There is nothing to go back to: {fleet} to {rules} and {hours} change screens, {quit} quits."
            )
        return super().cannot(action)

    def heading_of(self, line: L | None) -> str:
        """Return the heading of the page of a line."""
        return self.heading

    def open(self) -> None:
        """Open the page of the selected row."""
        rows = self.rows()
        if rows is None or rows.selected is None:
            return
        table, selected_key = rows, rows.key(rows.selected)

        def selected_line(view: ScreenView) -> L | None:
            lines = self.lines_of(table.id or "", view)
            return next((line for line in lines if table.key(line) == selected_key), None)

        self.app.push_screen(self.page_of(selected_line))

    def page_of(self, line: Callable[[ScreenView], L | None]) -> Page:
        """Return the page of a line; `line` returns the line in a view, or None if the view lacks it."""

        def sheet(view: ScreenView) -> Sheet | None:
            current = line(view)
            return None if current is None else self.details(current, view)

        heading = self.heading_of(line(self.view()))
        return SheetPage(self.view, heading, sheet, self.part, self.windowed, self.late_s)

    def back(self) -> None:
        """Clear and close the filter."""
        self.query_one(FilterBox).drop()
        self._focus_rows()

    def next(self) -> None:
        """Move the focus to the next table."""
        self.focus_next()

    def filter(self) -> None:
        """Open the input line of the filter."""
        self.query_one(FilterBox).open()
        self._divide_height()

    def sort(self) -> None:
        """Sort by the next column."""
        if rows := self.rows():
            rows.sort_next()

    def reverse(self) -> None:
        """Reverse the order."""
        if rows := self.rows():
            rows.reverse()

    def on_cursor_lines_chosen(self, event: CursorLines.Chosen) -> None:
        """Open the page of a clicked row."""
        event.stop()
        reason = self.cannot("open")
        if reason is None:
            self.open()
        else:
            self.app.notify(reason, markup=False)

    def filter_by(self, words: str) -> None:
        """Show the rows that pass a filter, while it is typed."""
        for rows in self.query(Rows):
            rows.filter_by(words)
        self._divide_height()

    def on_filter_box_left(self) -> None:
        """Move the focus back to the rows, and note a filter that stays in force."""
        self._divide_height()
        if not isinstance(self.focused, Rows):
            self._focus_rows()

    def _divide_height(self) -> None:
        """Divide the height among the tables, and note a filter that no row passes or that has no input line."""
        for stack in self.query(Stack):
            stack.settle()
        tables = self._tables()
        box = self.query_one(FilterBox)
        filter_words = box.value.strip().strip("!~").strip()  # an operator alone filters nothing
        matched, total = sum(len(table.matched) for table in tables), sum(table.count for table in tables)
        note = self.query_one("#filter-note", PlainText)
        note.display = bool(filter_words and tables) and (not matched or not box.display)
        note.update(kept(box.value, matched, total) if matched else nothing_matches(box.value))

    def give_back_keys(self) -> None:
        """Move the focus back to the rows."""
        self._focus_rows()

    def is_drawn(self) -> bool:
        """Return whether every table with lines has drawn rows."""
        return all(rows.size.height for rows in self.query(Rows) if rows.shown_lines and rows.matched)

    def top(self) -> None:
        """Go to the first row."""
        if rows := self.rows():
            rows.move_cursor(0)

    def bottom(self) -> None:
        """Go to the last row: the table first adds all missing rows."""
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
        """Return all columns of all rows that the filter keeps, as text."""
        lines = [self.heading]
        for rows in self.query(Rows):
            if rows.matched:
                lines += ["", *table("", rows.matched, rows.columns_known, None)[1:]]
        return "\n".join(lines) + "\n"

    def _tables(self) -> list[Rows[L]]:
        """Return the shown tables, in the order of focus."""
        return [widget for widget in self.focus_chain if isinstance(widget, Rows)]

    def _focus_rows(self) -> None:
        if rows := self.rows():
            rows.focus()


_INSTRUCTIONS = "Columns. {toggle} or enter hides a column, or shows it again; esc goes back. The choice is remembered."


class _ColumnLine(NamedTuple):
    """Line of the list of columns."""

    key: str
    name: str
    mark: str
    state: str


_LIST_COLUMNS: tuple[Column[_ColumnLine], ...] = (
    Column("", lambda line: line.mark, 0),
    Column("column", lambda line: line.name, 0, min_cells=10),
    Column("now", lambda line: line.state, 1),
)


class ColumnsPage(ListPage[_ColumnLine]):
    """List of the columns of a table, to hide or show them."""

    FOOTER = ("toggle", "back", "keys", "quit")
    WORDS: ClassVar[Mapping[str, str]] = {"toggle": "Hide or show"}
    OWN = frozenset({"toggle"})
    TABLES: ClassVar[Mapping[str, ListedTable]] = {"columns": ListedTable(lambda line: line.key, lambda: _LIST_COLUMNS)}
    late_s = None

    def __init__(self, view: Callable[[], ScreenView], table: Rows[object]) -> None:
        super().__init__(view, "Columns", windowed=False)
        self._table = table

    def part(self, view: ScreenView) -> Read[object]:
        """Return a constant: this page shows nothing from the database."""
        return Read(True, view.now_ts)

    def lines_of(self, table: str, view: ScreenView) -> Sequence[_ColumnLine]:
        """Return the columns, each with its state."""
        shown = self._table.shown_columns
        lines = []
        for column in self._table.columns_known:
            hidden = column.key in self._table.arrangement.hidden
            state = "hidden" if hidden else "shown" if column.key in shown else "no room or no values"
            lines.append(_ColumnLine(column.key, caption(column.name), "[ ]" if hidden else "[x]", state))
        return lines

    def head(self, view: ScreenView) -> str:
        """Return the instructions."""
        return with_keys(_INSTRUCTIONS)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now: the first column names the rows and cannot be hidden."""
        if action == "back":
            return None
        if action == "columns":
            return "These are the columns: esc goes back."
        if action in ("toggle", "open"):
            line = self.selected
            if line is None:
                return "No column is selected."
            if line.key == self._table.columns_known[0].key:
                return "This column names the rows: it is always shown."
            return None
        return super().cannot(action)

    def back(self) -> None:
        """Go back to the table."""
        self.app.pop_screen()

    def open(self) -> None:
        """Hide the column, or show it again."""
        self.toggle()

    def toggle(self) -> None:
        """Hide the column, or show it again."""
        line = self.selected
        if line is not None and self.cannot("toggle") is None:
            self._table.toggle(line.key)
            self.renew()
