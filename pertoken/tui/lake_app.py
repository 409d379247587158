"""Read-only screens over a lake: one tab with a table for each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from pertoken.lake.questions import Coverage
from pertoken.text.lake import LakeTable, coverage_lines

Answers = tuple[Sequence[LakeTable], Coverage]
"""Tables in the order of their tabs, and the hours that the lake covers."""


class LakeApp(App[None]):
    """Tables of a lake in tabs, read at start and again with `r`."""

    CSS = "Static { height: auto; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        ("r", "read_again", "read again"),
        ("left", "step(-1)", "before"),
        ("right", "step(1)", "next"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, url: str, read: Callable[[], Answers]) -> None:
        """`read` queries the lake; it runs in a thread and may raise PertokenError."""
        super().__init__()
        self._url, self._read_answers = url, read

    def compose(self) -> ComposeResult:
        """Lay out the head line, empty tabs and the footer."""
        yield Static(f"{self._url}: reading", id="head", markup=False)
        yield TabbedContent(id="answers")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Start the first read."""
        self.action_read_again()

    @work(thread=True, exclusive=True)
    def action_read_again(self) -> None:
        """Read everything again, in a thread."""
        from pertoken.errors import PertokenError

        try:
            answers = self._read_answers()
        except PertokenError as error:
            self.call_from_thread(self._show_head, [str(error)])
            return
        self.call_from_thread(self.call_later, self._show, answers)

    def action_step(self, by: int) -> None:
        """Show the tab `by` places to the right; negative: to the left."""
        tabs = self.query_one(TabbedContent)
        panes = [pane.id for pane in tabs.query(TabPane) if pane.id]
        if panes:
            tabs.active = panes[(panes.index(tabs.active) + by) % len(panes)]

    def _show_head(self, lines: Sequence[str]) -> None:
        self.query_one("#head", Static).update("\n".join([self._url, *lines]))

    async def _show(self, answers: Answers) -> None:
        tables, coverage = answers
        self._show_head(coverage_lines(coverage))
        tabs = self.query_one(TabbedContent)
        active_id = tabs.active
        await tabs.clear_panes()
        for index, table in enumerate(tables):
            await tabs.add_pane(TabPane(table.title.split(",")[0], *_widgets(table), id=f"answer-{index}"))
        if active_id:
            tabs.active = active_id


def _widgets(lake_table: LakeTable) -> list[Static | DataTable[str]]:
    note = [Static(lake_table.note, markup=False)] if lake_table.note else []
    if not lake_table.rows:
        return [Static("none", markup=False), *note]
    table: DataTable[str] = DataTable(cursor_type="row", zebra_stripes=True)
    table.add_columns(*(column.key for column in lake_table.columns))
    for row in lake_table.rows:
        table.add_row(*(column.text(row) for column in lake_table.columns))
    return [table, *note]
