"""The rules page: state, proposals and track record of each rule; a person switches rules off and on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.message import Message

from pertoken.text.rules import RULE_COLUMNS, RuleLine, rule_lines, rule_sheet, rules_head
from pertoken.text.sheet import Section, Sheet
from pertoken.text.study import RuleList
from pertoken.text.words import literal
from pertoken.tui.pages.list_page import ListedTable, ListPage
from pertoken.tui.pages.page import SheetPage
from pertoken.tui.source import Read, ScreenView


class RulesPage(ListPage[RuleLine]):
    """Screen 4."""

    FOOTER = ("fleet", "savings", "plan", "open", "toggle", "reload", "filter", "sort", "keys", "quit")
    OWN = frozenset({"toggle", "reload"})
    OWN_WRITES = frozenset({"toggle"})
    TABLES: ClassVar[Mapping[str, ListedTable]] = {
        "rules": ListedTable(lambda line: line.rule_id, lambda: RULE_COLUMNS, lambda line: line.is_off)
    }
    late_s = None

    class Reload(Message):
        """The rules have to be loaded again."""

    def part(self, view: ScreenView) -> Read[RuleList]:
        """Return the list of rules."""
        return view.study.rules

    def waiting(self, view: ScreenView) -> str:
        """Return the text shown before the rules are loaded, which the first visit of this page starts."""
        return super().waiting(view) if self.part(view).error is not None else "Loading the rules…"

    def lines_of(self, table: str, view: ScreenView) -> Sequence[RuleLine]:
        """Return the rules with their advice and records."""
        rule_list = view.study.rules.value
        if rule_list is None:
            return ()
        advice = view.reading.advice.value or ()
        return rule_lines(rule_list.rules, advice, view.study.records.value or {}, view.now_ts)

    def details(self, line: RuleLine, view: ScreenView) -> Sheet:
        """Return the facts of a rule."""
        return rule_sheet(line)

    def head(self, view: ScreenView) -> str:
        """Return the counts."""
        rule_list = view.study.rules.value
        assert rule_list is not None
        doing = "\nLoading the rules again…" if "rules" in view.working else ""
        return rules_head(self.lines_of("rules", view), rule_list.folder) + doing

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now: a denied rule cannot be switched on."""
        if action == "toggle":
            line = self.selected
            if line is None:
                return "No rule is selected."
            if line.listed.entry.state == "denied":
                return f"This rule is denied: {literal(line.listed.entry.reason or '')}"
            return None
        return super().cannot(action)

    def toggle(self) -> None:
        """Open the confirmation that switches the selected rule off or on."""
        line = self.selected
        assert line is not None
        self.app.push_screen(SwitchPage(self.view, line.rule_id, on=line.is_off))

    def page_about(self, rule_id: str) -> SheetPage:
        """Return the page of a rule, which can be opened while the rules are still being loaded."""

        def facts(view: ScreenView) -> Sheet | None:
            if view.study.rules.value is None:
                return (Section(literal(rule_id), (self.waiting(view),)),)
            line = next((line for line in self.lines_of("rules", view) if line.rule_id == rule_id), None)
            return None if line is None else self.details(line, view)

        return SheetPage(self.view, self.heading, facts, self.part, late_s=None)

    def reload(self) -> None:
        """Ask for the rules to be loaded again, files of the drop-in folder included."""
        self.post_message(self.Reload())


class SwitchPage(SheetPage):
    """Confirmation of a switch: enter switches the rule, escape goes back."""

    FOOTER = ("open", "back")
    WORDS: ClassVar[Mapping[str, str]] = {"open": "Confirm"}

    @dataclass
    class Switched(Message):
        """A person confirmed the switch."""

        rule_id: str
        on: bool

    def __init__(self, view: Callable[[], ScreenView], rule_id: str, *, on: bool) -> None:
        self._switched = self.Switched(rule_id, on=on)
        super().__init__(view, "Rules", lambda _: _question(rule_id, on=on), lambda view: view.study.rules, late_s=None)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing: only enter and escape do something."""
        return None if action == "open" else super().cannot(action)

    def open(self) -> None:
        """Confirm the switch."""
        self.app.post_message(self._switched)


def _question(rule_id: str, *, on: bool) -> Sheet:
    text = (
        "It runs again from the next advice run."
        if on
        else "It is left out of all later advice runs, also those of a service. Its proposals close after two runs."
    )
    return (
        Section(f"Switch {literal(rule_id)} {'on' if on else 'off'}?", (text,)),
        Section("enter confirms, esc goes back", ("Stored in disabled-rules.txt beside the settings file.",)),
    )
