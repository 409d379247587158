"""Decisions on a recommendation: its details with their keys, and the page that asks before one is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.message import Message

from pertoken.proof.judging.go_back_page import PAGE, RULE
from pertoken.proof.recommendation import Recommendation
from pertoken.tui.keys import DECISIONS
from pertoken.tui.pages.command_page import CommandPage
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.source import Read, View
from pertoken.tui.study import Detail
from pertoken.tui.text.advice_sheet import advice_sheet
from pertoken.tui.text.detail.sections import (
    detail_sections,
    editable,
    history_sections,
    page_section,
    provable_lines,
    trial_section,
)
from pertoken.tui.text.lifecycle import question, refused
from pertoken.tui.text.sheet import Sheet
from pertoken.tui.text.words import literal
from pertoken.tui.widgets.ask_box import AskBox

PROVABLE = ("accept", "trial")
"""Decisions that freeze an estimate: the page shows first what could be proven of it."""
_GONE = "It is no longer there: esc goes back."
_ASK = "Set an assumption to another number: its number = value, such as 1=1.5. An empty line is as measured."


def advice_part(view: View) -> Read[Any]:
    """Return the part of a reading that these pages show."""
    return view.reading.advice


def detail_of(view: View, each: Recommendation) -> Detail | None:
    """Return what was computed of a recommendation; None until it is."""
    detail = view.study.detail.value
    return detail if detail is not None and detail.recommendation_id == each.recommendation_id else None


class AdvicePage(CommandPage):
    """All of one recommendation, which can be decided on here."""

    FOOTER: ClassVar[tuple[str, ...]] = (
        "back",
        "accept",
        "snooze",
        "dismiss",
        "copy",
        "copy_all",
        "assume",
        "keys",
        "quit",
    )
    OWN: ClassVar[frozenset[str]] = frozenset({*DECISIONS, "copy", "copy_all", "assume"})

    class Opened(Message):
        """All that can be computed of a recommendation is wanted, with other numbers for some assumptions."""

        def __init__(self, recommendation: Recommendation, values: Mapping[str, float]) -> None:
            super().__init__()
            self.recommendation = recommendation
            self.values = values

    def __init__(self, view: Callable[[], View], heading: str, line: Callable[[View], Recommendation | None]) -> None:
        self.line = line
        super().__init__(view, heading, self._sheet_of, advice_part)

    def body(self) -> ComposeResult:
        """The text, and the line to type a number in."""
        yield from super().body()
        yield AskBox()

    def on_mount(self) -> None:
        """Ask for what has to be computed; what is stored is shown by then."""
        each = self.line(self.view())
        if each is not None:
            self.post_message(self.Opened(each, {}))

    def _sheet_of(self, view: View) -> Sheet | None:
        each = self.line(view)
        if each is None:
            return None
        rules = view.study.rules.value.rules if view.study.rules.value is not None else ()
        own = PAGE if each.rule_id == RULE else None
        page = next((rule.page for rule in rules if rule.entry.id == each.rule_id), own)
        detail = self._detail(view)
        computed = detail_sections(detail, view.working.get("detail")) if each.chosen is not None else ()
        tried = trial_section(each, detail, view.now_ts)
        return (*tried, *advice_sheet(each, view.now_ts, computed), *history_sections(detail), *page_section(page))

    def _detail(self, view: View) -> Detail | None:
        each = self.line(view)
        return None if each is None else detail_of(view, each)

    def cannot(self, action: str) -> str | None:
        """Its state decides which decisions are possible."""
        if action in DECISIONS:
            each = self.line(self.view())
            return _GONE if each is None else refused(each, action)
        if action == "assume":
            detail = self._detail(self.view())
            if detail is None:
                return "Its assumptions are not computed yet."
            return None if editable(detail.tested) else "No number is assumed here that could be set."
        return super().cannot(action)

    def decide(self, decision: str) -> None:
        """Ask before a decision is stored."""
        each = self.line(self.view())
        if each is not None:
            self.app.push_screen(DecisionPage(self.view, each, decision))

    def commands(self) -> tuple[Sequence[str], Sequence[str]]:
        """Those of the variant that was chosen, else the best."""
        each = self.line(self.view())
        chosen = each.chosen if each is not None else None
        return ((), ()) if chosen is None else (chosen.commands, chosen.undo)

    def assume(self) -> None:
        """Type a number for one assumption."""
        detail = self._detail(self.view())
        assert detail is not None
        names = [each.assumption for each in editable(detail.tested)]
        known = [f"{names.index(name) + 1}={value:g}" for name, value in detail.values.items() if name in names]
        self.query_one(AskBox).ask(_ASK, " ".join(known))

    def on_ask_box_given(self, event: AskBox.Given) -> None:
        """Compute it with the numbers that were typed."""
        event.stop()
        each, detail = self.line(self.view()), self._detail(self.view())
        if each is None or detail is None:
            return
        names = [one.assumption for one in editable(detail.tested)]
        values = numbers(event.text, names)
        if isinstance(values, str):
            self.app.notify(values, severity="error", markup=False)
            return
        self.close_input()
        self.post_message(self.Opened(each, values))

    def close_input(self) -> bool:
        """Leave the numbers as they are."""
        was = self.query_one(AskBox).close()
        if was:
            self.query_one("VerticalScroll").focus()
        return was


def numbers(text: str, names: Sequence[str]) -> dict[str, float] | str:
    """Return the values by assumption of a line such as `1=1.5 3=400`, or why it cannot be read."""
    found: dict[str, float] = {}
    for word in text.split():
        number, _, value = word.partition("=")
        try:
            at, amount = int(number), float(value)
        except ValueError:
            return f"{literal(word)}: write the number of an assumption, =, and its value, such as 1=1.5"
        if not 1 <= at <= len(names):
            return f"{at}: there is no such assumption; they have the numbers 1 to {len(names)}"
        if not 0 < amount < 1e9:
            return f"{literal(word)}: use a value above 0"
        found[names[at - 1]] = amount
    return found


class DecisionPage(SheetPage):
    """What a decision does; enter stores it, escape goes back."""

    FOOTER: ClassVar[tuple[str, ...]] = ("open", "back")

    class Confirmed(Message):
        """A person decided."""

        def __init__(self, recommendation: Recommendation, decision: str) -> None:
            super().__init__()
            self.recommendation = recommendation
            self.decision = decision

    def __init__(self, view: Callable[[], View], recommendation: Recommendation, decision: str) -> None:
        self._recommendation, self._decision = recommendation, decision
        super().__init__(view, "Savings", self._sheet_of, advice_part)

    def on_mount(self) -> None:
        """Ask for what its history could prove, before a person accepts it."""
        if self._decision in PROVABLE and detail_of(self.view(), self._recommendation) is None:
            self.post_message(AdvicePage.Opened(self._recommendation, {}))

    def _sheet_of(self, view: View) -> Sheet:
        each = self._recommendation
        lines: tuple[str, ...] = ()
        if self._decision in PROVABLE:
            lines = provable_lines(detail_of(view, each), view.working.get("detail"), view.study.detail.error)
        return question(each, self._decision, view.now_ts, lines)

    def cannot(self, action: str) -> str | None:
        """Only enter and escape answer it."""
        if action == "open":
            return None
        if action in DECISIONS:
            return "Press enter to confirm, or esc to go back."
        return super().cannot(action)

    def open(self) -> None:
        """Confirm."""
        self.app.post_message(self.Confirmed(self._recommendation, self._decision))
