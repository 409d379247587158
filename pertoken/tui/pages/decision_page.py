"""Pages for decisions: the details of a recommendation, and the confirmation before a decision is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message

from pertoken.proof.recommendation import Recommendation, built_in_page
from pertoken.text.advice_sheet import advice_sheet
from pertoken.text.decision import (
    detail_sections,
    editable,
    history_sections,
    page_section,
    paid_section,
    provable_lines,
    trial_section,
)
from pertoken.text.keys import DECISIONS
from pertoken.text.lifecycle import question, refused
from pertoken.text.sheet import Sheet
from pertoken.text.study import Detail
from pertoken.text.words import literal
from pertoken.tui.pages.page import CommandPage, SheetPage
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.boxes import AskBox

PROVABLE = ("accept", "trial")
"""Decisions that freeze an estimate: the confirmation shows which saving telemetry could prove."""
_GONE = "It no longer exists: esc goes back."
_ASK = "Set an assumption to another value: NUMBER=VALUE, such as 1=1.5. An empty line restores what was measured."


def advice_part(view: ScreenView) -> Read[object]:
    """Return the reading of the advice, which these pages show."""
    return view.reading.advice


def current_advice(shown: Recommendation) -> Callable[[ScreenView], Recommendation | None]:
    """Return a function that finds a recommendation in a view, whatever its state is by then."""

    def current(view: ScreenView) -> Recommendation | None:
        advice = view.reading.advice.value or ()
        return next((row for row in advice if row.recommendation_id == shown.recommendation_id), None)

    return current


def detail_of(view: ScreenView, recommendation: Recommendation) -> Detail | None:
    """Return the computed detail of a recommendation; None until it is computed."""
    detail = view.study.detail.value
    return detail if detail is not None and detail.recommendation_id == recommendation.recommendation_id else None


class AdvicePage(CommandPage):
    """Details of one recommendation, with the keys of its decisions."""

    FOOTER = ("back", "accept", "snooze", "dismiss", "copy", "copy_all", "assume", "keys", "quit")
    OWN = frozenset({*DECISIONS, "copy", "copy_all", "assume"})

    @dataclass
    class Opened(Message):
        """The detail of a recommendation has to be computed; `values` replaces some assumptions, by name."""

        recommendation: Recommendation
        values: Mapping[str, float]

    def __init__(
        self, view: Callable[[], ScreenView], heading: str, line: Callable[[ScreenView], Recommendation | None]
    ) -> None:
        self.line = line
        super().__init__(view, heading, self._sheet_of, advice_part)

    def body(self) -> ComposeResult:
        """Yield the text and the input line for assumptions."""
        yield from super().body()
        yield AskBox()

    def on_mount(self) -> None:
        """Ask for the computed detail; the stored facts are shown meanwhile."""
        recommendation = self.line(self.view())
        if recommendation is not None:
            self.post_message(self.Opened(recommendation, {}))

    def _sheet_of(self, view: ScreenView) -> Sheet | None:
        recommendation = self.line(view)
        if recommendation is None:
            return None
        rules = view.study.rules.value.rules if view.study.rules.value is not None else ()
        own_page = built_in_page(recommendation.rule_id)
        page = next((rule.page for rule in rules if rule.entry.id == recommendation.rule_id), own_page)
        detail = self._detail(view)
        computed = detail_sections(detail, view.working.get("detail")) if recommendation.chosen is not None else ()
        tried = trial_section(recommendation, detail, view.now_ts)
        return (
            *tried,
            *paid_section(detail),
            *advice_sheet(recommendation, view.now_ts, computed, advice=view.reading.advice.value or ()),
            *history_sections(detail),
            *page_section(page),
        )

    def _detail(self, view: ScreenView) -> Detail | None:
        recommendation = self.line(view)
        return None if recommendation is None else detail_of(view, recommendation)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; the state allows some decisions only."""
        if action in DECISIONS:
            recommendation = self.line(self.view())
            return _GONE if recommendation is None else refused(recommendation, action)
        if action == "assume":
            detail = self._detail(self.view())
            if detail is None:
                return "Its assumptions are still being computed."
            return None if editable(detail.tested) else "It has no assumption that could be set."
        return super().cannot(action)

    def decide(self, decision: str) -> None:
        """Open the confirmation of a decision."""
        recommendation = self.line(self.view())
        if recommendation is not None:
            self.app.push_screen(DecisionPage(self.view, recommendation, decision))

    def commands(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the commands of the chosen variant, else of the best."""
        recommendation = self.line(self.view())
        chosen = recommendation.chosen if recommendation is not None else None
        return ((), ()) if chosen is None else (chosen.commands, chosen.undo)

    def assume(self) -> None:
        """Open the input line for assumptions."""
        detail = self._detail(self.view())
        assert detail is not None
        names = [sensitivity.assumption for sensitivity in editable(detail.tested)]
        entered = [f"{names.index(name) + 1}={value:g}" for name, value in detail.values.items() if name in names]
        self.query_one(AskBox).ask(_ASK, " ".join(entered))

    def on_ask_box_given(self, event: AskBox.Given) -> None:
        """Compute the detail again with the values that were typed."""
        event.stop()
        recommendation, detail = self.line(self.view()), self._detail(self.view())
        if recommendation is None or detail is None:
            return
        names = [sensitivity.assumption for sensitivity in editable(detail.tested)]
        values = numbers(event.text, names)
        if isinstance(values, str):
            self.app.notify(values, severity="error", markup=False)
            return
        self.close_input()
        self.post_message(self.Opened(recommendation, values))

    def give_back_keys(self) -> None:
        """Move the focus back to the text."""
        self.query_one("VerticalScroll").focus()


def numbers(text: str, names: Sequence[str]) -> dict[str, float] | str:
    """Return the values of a line such as `1=1.5 3=400` by assumption, or an error message."""
    values: dict[str, float] = {}
    for word in text.split():
        number, _, value = word.partition("=")
        try:
            index, amount = int(number), float(value)
        except ValueError:
            return f"{literal(word)}: write NUMBER=VALUE, such as 1=1.5 for assumption 1"
        if not 1 <= index <= len(names):
            return f"{index}: no such assumption; they are numbered 1 to {len(names)}"
        if not 0 < amount < 1e9:
            return f"{literal(word)}: use a value above 0"
        values[names[index - 1]] = amount
    return values


class DecisionPage(SheetPage):
    """Confirmation of a decision: enter stores it, escape goes back."""

    FOOTER = ("open", "back")
    WORDS: ClassVar[Mapping[str, str]] = {"open": "Confirm"}

    @dataclass
    class Confirmed(Message):
        """A person confirmed the decision."""

        recommendation: Recommendation
        decision: str

    def __init__(self, view: Callable[[], ScreenView], recommendation: Recommendation, decision: str) -> None:
        self._recommendation, self._decision = recommendation, decision
        super().__init__(view, "Savings", self._sheet_of, advice_part)

    def on_mount(self) -> None:
        """Ask for the computed detail: it holds which saving telemetry could prove."""
        if self._decision in PROVABLE and detail_of(self.view(), self._recommendation) is None:
            self.post_message(AdvicePage.Opened(self._recommendation, {}))

    def _sheet_of(self, view: ScreenView) -> Sheet:
        recommendation = self._recommendation
        lines: tuple[str, ...] = ()
        if self._decision in PROVABLE:
            lines = provable_lines(detail_of(view, recommendation), view.working.get("detail"), view.study.detail.error)
        return question(recommendation, self._decision, view.now_ts, lines)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing: only enter and escape do something."""
        if action == "open":
            return None
        if action in DECISIONS:
            return "Press enter to confirm, or esc to go back."
        return super().cannot(action)

    def open(self) -> None:
        """Confirm the decision."""
        self.app.post_message(self.Confirmed(self._recommendation, self._decision))
