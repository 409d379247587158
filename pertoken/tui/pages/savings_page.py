"""Savings: what could be cheaper, and what could not be evaluated, with the reason."""

from collections.abc import Sequence
from typing import Any

from textual.app import ComposeResult
from textual.widgets import Static, TabbedContent, TabPane

from pertoken.advisor.recommendation import Recommendation
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.source import Read, View
from pertoken.tui.text.advice_columns import NOT_EVALUATED_COLUMNS, OPEN_COLUMNS, not_evaluated, open_advice
from pertoken.tui.text.advice_sheet import advice_sheet
from pertoken.tui.text.notes import advice_note, totals
from pertoken.tui.text.sheet import Sheet
from pertoken.tui.widgets.rows import Rows
from pertoken.tui.widgets.stack import Stack


class SavingsPage(ListPage):
    """The second screen."""

    def lists(self) -> ComposeResult:
        """Totals, and a tab for what is proposed and for what is not."""
        yield Static(id="totals", markup=False)
        with TabbedContent(initial="open-tab"):
            with TabPane("Open", id="open-tab"), Stack():
                yield Rows[Recommendation](lambda each: each.recommendation_id, "open")
            with TabPane("Not evaluated", id="silent-tab"), Stack():
                yield Rows[Recommendation](lambda each: each.recommendation_id, "silent")

    def part(self, view: View) -> Read[Any]:
        """This page shows advice."""
        return view.reading.advice

    def lines_of(self, table: str, view: View) -> Sequence[Any]:
        """Proposals, or rules without one."""
        advice: tuple[Recommendation, ...] = view.reading.advice.value or ()
        return open_advice(advice) if table == "open" else not_evaluated(advice)

    def details(self, line: Any, view: View) -> Sheet:
        """All a rule said."""
        return advice_sheet(line, view.now_ts)

    def fill(self, view: View) -> None:
        """Show the advice."""
        proposed, silent = self.lines_of("open", view), self.lines_of("silent", view)
        advice = view.reading.advice.value or ()
        self.query_one("#totals", Static).update(totals(proposed) if proposed else advice_note(advice))
        tabs = self.query_one(TabbedContent)
        tabs.get_tab("open-tab").label = f"Open ({len(proposed)})"
        tabs.get_tab("silent-tab").label = f"Not evaluated ({len(silent)})"
        self.query_one("#open", Rows).show(proposed, OPEN_COLUMNS, lambda _: False)
        self.query_one("#silent", Rows).show(silent, NOT_EVALUATED_COLUMNS, lambda _: False)

    def next(self) -> None:
        """Go to the other tab."""
        tabs = self.query_one(TabbedContent)
        tabs.active = "silent-tab" if tabs.active == "open-tab" else "open-tab"

    def on_tabbed_content_tab_activated(self) -> None:
        """Give the keys to the rows that came up."""
        self.call_after_refresh(self._focus_rows)
