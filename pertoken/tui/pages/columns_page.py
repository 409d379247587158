"""Page that hides and shows the columns of one table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from textual.app import ComposeResult

from pertoken.text.amounts import caption
from pertoken.text.columns import Column
from pertoken.text.keys import with_keys
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.source import Read, View
from pertoken.tui.widgets.containers.stack import Stack
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.tui.widgets.rows import Rows

_HEAD = "Columns. {toggle} or enter hides a column, or shows it again; esc goes back. The choice is remembered."


class _Line(NamedTuple):
    key: str
    name: str
    mark: str
    state: str


_COLUMNS: tuple[Column[_Line], ...] = (
    Column("", lambda line: line.mark, 0),
    Column("column", lambda line: line.name, 0, min_cells=10),
    Column("now", lambda line: line.state, 1),
)


class ColumnsPage(ListPage):
    """List of the columns of `table`, each of which can be hidden or shown."""

    FOOTER: ClassVar[tuple[str, ...]] = ("toggle", "back", "keys", "quit")
    WORDS: ClassVar[Mapping[str, str]] = {"toggle": "Hide or show"}
    OWN: ClassVar[frozenset[str]] = frozenset({"toggle"})
    late_s = None

    def __init__(self, view: Callable[[], View], table: Rows[Any]) -> None:
        super().__init__(view, "Columns", windowed=False)
        self._table = table

    def lists(self) -> ComposeResult:
        """Yield the instructions and the list of columns."""
        yield PlainText(id="columns-head")
        with Stack():
            yield Rows[_Line](lambda line: line.key, "columns")

    def part(self, view: View) -> Read[Any]:
        """Return a constant value: this page shows nothing that was read."""
        return Read(True, view.now_ts)

    def lines_of(self, table: str, view: View) -> Sequence[Any]:
        """Return the columns, each with its state."""
        shown = self._table.shown_columns
        lines = []
        for column in self._table.columns_known:
            hidden = column.key in self._table.arrangement.hidden
            state = "hidden" if hidden else "shown" if column.key in shown else "no room or no values"
            lines.append(_Line(column.key, caption(column.name), "[ ]" if hidden else "[x]", state))
        return lines

    def fill(self, view: View) -> None:
        """Fill the list of columns."""
        self.query_one("#columns-head", PlainText).update(with_keys(_HEAD))
        self.query_one("#columns", Rows).show(self.lines_of("columns", view), _COLUMNS, lambda _: False)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now: the first column names the rows and cannot be hidden."""
        if action == "back":
            return None
        if action == "columns":
            return "These are the columns: esc goes back."
        if action in ("toggle", "open"):
            line = self._selected()
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
        line = self._selected()
        if line is not None and self.cannot("toggle") is None:
            self._table.toggle(line.key)
            self.renew()

    def _selected(self) -> _Line | None:
        rows = self.rows()
        selected: _Line | None = None if rows is None else rows.selected
        return selected
