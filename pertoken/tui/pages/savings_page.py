"""The savings page: open proposals, decisions, measured savings, and rules that could not be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.widgets import TabbedContent, TabPane

from pertoken.proof.recommendation import Recommendation
from pertoken.text.advice_table import (
    DECIDED_COLUMNS,
    DONE_COLUMNS,
    HOUR_RATE,
    NOT_EVALUATED_COLUMNS,
    OPEN_COLUMNS,
    PAY_MORE_COLUMNS,
    Folded,
    advice_note,
    decided,
    declined,
    done,
    folded,
    not_evaluated,
    open_advice,
    open_columns,
    paying_more,
    totals,
    unconfirmed_note,
)
from pertoken.text.keys import DECISIONS, with_keys
from pertoken.text.lifecycle import refused
from pertoken.text.plan import capacity_line, headline, weakest
from pertoken.tui.pages.decision_page import AdvicePage, DecisionPage, advice_part, current_advice
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.page import MIN_HEIGHT, Page
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.layout import PlainText, Stack
from pertoken.tui.widgets.table import Rows


def _of(
    select: Callable[[Sequence[Recommendation]], list[Recommendation]],
) -> Callable[[ScreenView], list[Recommendation]]:
    return lambda view: select(view.reading.advice.value or ())


def _folds(view: ScreenView) -> Folded:
    report = view.reading.fleet.value
    troubles = () if report is None else report.troubles
    return folded(open_advice(view.reading.advice.value or ()), troubles, view.hour_rate or HOUR_RATE)


def _shown(view: ScreenView) -> list[Recommendation]:
    return list(_folds(view).shown)


def _folded(view: ScreenView) -> list[Recommendation]:
    """Return the rows with a late payback, then by rule the rows without a figure."""
    folds = _folds(view)
    return [*folds.slow, *(row for rows in folds.by_rule for row in rows)]


_TABS = {
    "open": ("Open", _shown, OPEN_COLUMNS),
    "decided": ("Decided", _of(decided), DECIDED_COLUMNS),
    "done": ("Done", _of(done), DONE_COLUMNS),
    "silent": ("Not evaluated", _of(not_evaluated), NOT_EVALUATED_COLUMNS),
    "dearer": ("Pay more, serve more", _of(paying_more), PAY_MORE_COLUMNS),
    "folded": ("Folded", _folded, OPEN_COLUMNS),
}
"""Title, selection of advice and columns of each table, by its id."""
_ALWAYS = ("open", "silent")
"""Tabs that are shown without rows too."""


class SavingsPage(ListPage[Recommendation]):
    """Screen 2."""

    def lists(self) -> ComposeResult:
        """Yield the totals, and a tab for each group of advice."""
        yield PlainText(id="totals")
        with TabbedContent(initial="open-tab"):
            for table, (title, _, _) in _TABS.items():
                with TabPane(title, id=f"{table}-tab"), Stack():
                    yield Rows[Recommendation](lambda row: row.recommendation_id, table)

    def part(self, view: ScreenView) -> Read[object]:
        """Return the reading of the advice."""
        return advice_part(view)

    def lines_of(self, table: str, view: ScreenView) -> Sequence[Recommendation]:
        """Return the advice of one tab."""
        return _TABS[table][1](view)

    def page_of(self, line: Callable[[ScreenView], Recommendation | None]) -> Page:
        """Return the page of a recommendation, which follows it when a decision moves it to another tab."""
        shown = line(self.view())
        assert shown is not None
        return AdvicePage(self.view, self.heading, current_advice(shown))

    def fill(self, view: ScreenView) -> None:
        """Fill totals, tabs and tables."""
        advice = view.reading.advice.value or ()
        proposed = open_advice(advice)
        self.query_one("#totals", PlainText).update("\n".join(filter(None, (*_head(proposed, view), declined(advice)))))
        tabs = self.query_one(TabbedContent)
        for table, (title, _, columns) in _TABS.items():
            lines = self.lines_of(table, view)
            tab = tabs.get_tab(f"{table}-tab")
            label = f"{title} ({len(lines)})" if self.size.height >= MIN_HEIGHT else title
            if tab.label_text != label:
                tab.label = label
            if table == "open":
                columns = open_columns(view.study.records.value, view.reading.fleet.value)
            self.query_one(f"#{table}", Rows).show(lines, columns, lambda _: False)
            if lines or table in _ALWAYS:
                tabs.show_tab(f"{table}-tab")
            elif tabs.active != f"{table}-tab":
                tabs.hide_tab(f"{table}-tab")

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; the state of a row allows some decisions only."""
        if action in DECISIONS:
            row = self.selected
            return f"There is no row to {action}." if row is None else refused(row, action)
        return super().cannot(action)

    def decide(self, decision: str) -> None:
        """Open the confirmation of a decision on the selected row."""
        row = self.selected
        if row is not None:
            self.app.push_screen(DecisionPage(self.view, row, decision))

    def next(self) -> None:
        """Go to the next tab that is shown."""
        tabs = self.query_one(TabbedContent)
        shown = [f"{table}-tab" for table in _TABS if tabs.get_tab(f"{table}-tab").display]
        tabs.active = shown[(shown.index(tabs.active) + 1) % len(shown)]

    def on_tabbed_content_tab_activated(self) -> None:
        """Move the focus to the rows of the new tab."""
        self.call_after_refresh(self._focus_rows)


def _head(proposed: Sequence[Recommendation], view: ScreenView) -> list[str]:
    """Return the total saving of all proposals: the figures of the plan with their least certain assumption."""
    shown = view.study.plan.value
    if not proposed:
        return [view.reading.no_advice.value or advice_note(view.reading.advice.value or ())]
    if shown is None:
        return [totals(view.reading.advice.value or ())]
    together = [headline(shown.plan), weakest(shown.plan) or "", capacity_line(shown.plan)]
    if shown.request is not None:
        together.append(with_keys("You changed the plan ({plan}): these figures are with your steps and assumptions."))
    alone = with_keys("Each row: low–likely–high, alone. The plan ({plan}) counts nothing twice.")
    folds = _folds(view)
    late = f"{len(folds.slow)} pay back in over a year" if folds.slow else ""
    silent = sum(map(len, folds.by_rule))
    hidden = ", ".join(filter(None, (late, f"{silent} without a figure" if silent else "")))
    if not _shown(view):
        return [
            *filter(None, together),
            with_keys(
                f"Nothing here to act on. {{next}} shows Folded ({hidden}) and Not evaluated (why each rule proposes "
                "nothing)."
            ),
        ]
    notes = (unconfirmed_note(proposed), f"Folded, in a tab: {hidden}." if hidden else None)
    return [*filter(None, together), alone, *filter(None, notes)]
