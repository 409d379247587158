"""Screens over a lake: one table for each question. They show, and change nothing."""

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


class LakeApp(App[None]):
    """Tables of a lake in tabs, read when the screens open and again with a key."""

    CSS = "Static { height: auto; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        ("r", "read_again", "read again"),
        ("left", "step(-1)", "before"),
        ("right", "step(1)", "next"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, url: str, read: Callable[[], Answers]) -> None:
        """`read` asks the lake; it runs in a thread and may raise PertokenError."""
        super().__init__()
        self._url, self._read_answers = url, read

    def compose(self) -> ComposeResult:
        """Make a place for tables that are not read yet."""
        yield Static(f"{self._url}: reading", id="head", markup=False)
        yield TabbedContent(id="answers")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
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
        """Show the next tab, or the one before."""
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
        active = tabs.active
        await tabs.clear_panes()
        for n, answer in enumerate(tables):
            await tabs.add_pane(TabPane(answer.title.split(",")[0], *_widgets(answer), id=f"answer-{n}"))
        if active:
            tabs.active = active


def _widgets(answer: LakeTable) -> list[Static | DataTable[str]]:
    note = [Static(answer.note, markup=False)] if answer.note else []
    if not answer.rows:
        return [Static("none", markup=False), *note]
    table: DataTable[str] = DataTable(cursor_type="row", zebra_stripes=True)
    table.add_columns(*(column.key for column in answer.columns))
    for row in answer.rows:
        table.add_row(*(column.text(row) for column in answer.columns))
    return [table, *note]
