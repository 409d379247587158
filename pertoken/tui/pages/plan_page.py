"""The plan page: steps in their order with their total saving; a person moves them, leaves them out, asks what if."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.message import Message

from pertoken.errors import BadInput
from pertoken.text.advice_table import advice_note
from pertoken.text.columns import Column
from pertoken.text.keys import key_name, with_keys
from pertoken.text.plan import (
    AFTER,
    EXAMPLE,
    LEFT_OUT_COLUMNS,
    NOW,
    PLAN_COLUMNS,
    PlanLine,
    capacity_line,
    headline,
    left_out_sheet,
    others_left_out,
    plan_lines,
    step_sheet,
    weakest,
    what_if_words,
)
from pertoken.text.sheet import Sheet
from pertoken.text.study import ShownPlan
from pertoken.text.words import literal
from pertoken.tui.pages.list_page import ListedTable, ListPage
from pertoken.tui.pages.page import CommandPage, Page, write_new
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.boxes import AskBox

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import LeftOut, PlanLimits
    from pertoken.advisor.planning import PlanRequest


class _Form(NamedTuple):
    suffix: str
    name: str
    use: str


_FORMS = (
    _Form("md", "Markdown", "for people: the bill, and each step with commands and undo"),
    _Form("sh", "shell script", "commands to read, then run; undo is in comments"),
    _Form("yaml", "Kubernetes patches", "for a kustomization.yaml: arguments of engines"),
    _Form("json", "JSON", "for programs; as `pertoken plan --json` prints it"),
)
_COLUMNS: tuple[Column[_Form], ...] = (
    Column("format", lambda form: form.name, 0),
    Column("content", lambda form: form.use, 1, min_cells=20),
)


class ExportPage(ListPage[_Form]):
    """List of formats. `enter` writes a file into the folder that pertoken was started in, `y` copies the text."""

    FOOTER = ("open", "back", "copy", "keys", "quit")
    WORDS: ClassVar[Mapping[str, str]] = {"open": "Write"}
    OWN = frozenset({"copy"})
    TABLES: ClassVar[Mapping[str, ListedTable]] = {"formats": ListedTable(lambda form: form.suffix, lambda: _COLUMNS)}
    late_s = None

    def __init__(self, view: Callable[[], ScreenView], heading: str, shown: ShownPlan) -> None:
        super().__init__(view, heading, windowed=False)
        self._shown = shown

    def part(self, view: ScreenView) -> Read[object]:
        """Return the computed plan, which this page exports."""
        return view.study.plan

    def lines_of(self, table: str, view: ScreenView) -> Sequence[_Form]:
        """Return the formats."""
        return _FORMS

    def head(self, view: ScreenView) -> str:
        """Return the instructions."""
        head = f"Export the plan. enter writes a file into {literal(str(Path.cwd()))}; "
        return head + with_keys("{copy} copies it instead; esc goes back.")

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; None if it does something."""
        return None if action == "back" else super().cannot(action)

    def back(self) -> None:
        """Go back to the plan."""
        self.app.pop_screen()

    def open(self) -> None:
        """Write the plan into a new file, and notify its path."""
        form = self.selected
        assert form is not None
        made = datetime.fromtimestamp(self.view().now_ts, UTC)
        name = f"pertoken-plan-{made:%Y%m%d-%H%M%S}"
        try:
            file = write_new(Path.cwd(), name, form.suffix, self._text(form))
        except OSError as error:
            reason = error.strerror or str(error)
            self.app.notify(
                f"{Path.cwd()}: {reason}; {key_name('copy')} copies it instead", severity="error", markup=False
            )
            return
        self.app.pop_screen()
        self.app.notify(f"Wrote {file}", markup=False)

    def copy(self) -> None:
        """Copy the plan in the selected format."""
        form = self.selected
        assert form is not None
        self.app.copy_to_clipboard(self._text(form))
        self.app.notify(f"Copied the plan as {form.name}.", markup=False)

    def _text(self, form: _Form) -> str:
        from pertoken.text.export import PlanFormat, exported

        return exported(self._shown.plan, self._shown.window_s, PlanFormat(form.suffix))


_BILLS = {
    NOW: "This row is the monthly bill as it is now. Select a step to open or change it.",
    AFTER: "This row is the monthly bill after all steps. Select a step to open or change it.",
}
"""Reasons why keys of steps do nothing on the first and the last row, by key of the row."""
_NOT_A_STEP = "The search left this change out: enter shows why."
_ASK = f"What if: {EXAMPLE}\nType one or more of these, then enter. An empty line: no assumptions. esc closes."


class PlanPage(ListPage["PlanLine | LeftOut"]):
    """Screen 3."""

    FOOTER = ("savings", "open", "toggle", "move_up", "move_down", "assume", "export", "fleet", "rules", "keys", "quit")
    OWN = frozenset({"toggle", "move_up", "move_down", "assume", "export", "reload"})
    TABLES: ClassVar[Mapping[str, ListedTable]] = {
        "steps": ListedTable(lambda line: line.key, lambda: PLAN_COLUMNS),
        "left-out": ListedTable(lambda proposal: proposal.recommendation_id, lambda: LEFT_OUT_COLUMNS),
    }
    late_s = None

    @dataclass
    class Requested(Message):
        """The plan has to be composed again; `fresh`: from the newest telemetry."""

        request: PlanRequest | None
        fresh: bool = False

    def body(self) -> ComposeResult:
        """Yield the tables, and the input line for assumptions."""
        yield from super().body()
        yield AskBox()

    def part(self, view: ScreenView) -> Read[object]:
        """Return the plan; if it is missing because the advice could not be read, the advice with its error."""
        plan, advice = view.study.plan, view.reading.advice
        return advice if plan == Read() and advice.value is None and advice.error is not None else plan

    def waiting(self, view: ScreenView) -> str:
        """Return the progress of the first plan."""
        doing = view.working.get("plan")
        return super().waiting(view) if doing is None else f"Composing the plan: {literal(doing)}…"

    def lines_of(self, table: str, view: ScreenView) -> Sequence[PlanLine | LeftOut]:
        """Return the steps between the bills before and after, or the proposals that were left out."""
        shown = view.study.plan.value
        if shown is None:
            return ()
        without = frozenset() if shown.request is None else shown.request.limits.without
        without_next = frozenset() if view.request is None else view.request.limits.without
        if table == "left-out":
            return others_left_out(shown.plan, without)
        return [
            replace(line, mark="[ ]") if line.step is not None and line.recommendation_id in without_next else line
            for line in plan_lines(shown.plan, without)
        ]

    def head(self, view: ScreenView) -> str:
        """Return the figures of the plan, and what they leave out or assume."""
        shown = self._shown(view)
        plan = shown.plan
        lines = [headline(plan)]
        if plan.steps:
            lines += [weakest(plan) or "", capacity_line(plan)]
        elif not plan.left_out:
            lines.append(view.reading.no_advice.value or advice_note(view.reading.advice.value or ()))
        if plan.unpriced_hosts:
            lines.append(f"Without a price, and not counted: {literal(', '.join(plan.unpriced_hosts))}.")
        if not plan.exact:
            lines.append("Not every combination of changes could be tried: another plan may be better.")
        if shown.request is not None and shown.request.what_if:
            lines.append(
                f"What if: {literal(what_if_words(shown.request.what_if))}. "
                + with_keys("These are assumptions: {assume} changes them.")
            )
        doing = view.working.get("plan")
        lines.append(f"Composing again: {literal(doing)}…" if doing is not None else "")
        return "\n".join(filter(None, lines))

    def details(self, line: PlanLine | LeftOut, view: ScreenView) -> Sheet:
        """Return the facts of a step, or the reason why a proposal was left out."""
        return step_sheet(line) if isinstance(line, PlanLine) else left_out_sheet(line)

    def page_of(self, line: Callable[[ScreenView], PlanLine | LeftOut | None]) -> Page:
        """Return the page of a line; that of a step has commands to copy."""
        shown = line(self.view())
        if isinstance(shown, PlanLine) and shown.step is not None:
            return StepPage(self.view, self.heading, line)
        return super().page_of(line)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; only steps are moved and left out."""
        if action in ("toggle", "move_up", "move_down", "open"):
            line = self.selected
            if isinstance(line, PlanLine) and line.recommendation_id is None:
                return _BILLS[line.key]
            if action == "open":
                return super().cannot(action)
            if not isinstance(line, PlanLine):
                return "No step is selected." if line is None else _NOT_A_STEP
            if line.step is not None and line.step.accepted:
                return with_keys("It is accepted: {reopen} on the savings page withdraws that.")
            return None if action == "toggle" else self._cannot_move(line, -1 if action == "move_up" else 1)
        if action == "export" and self.view().study.plan.value is None:
            return "There is no plan yet."
        return super().cannot(action)

    def _cannot_move(self, line: PlanLine, by: int) -> str | None:
        rows = self.rows()
        if rows is not None and rows.is_sorted:
            return with_keys("The table is sorted: press {sort} until it is unsorted, then move steps.")
        if line.number is None:
            return with_keys("It is left out: {toggle} includes it again.")
        steps, index = self._shown(self.view()).plan.steps, line.number - 1 + by
        if not 0 <= index < len(steps):
            return f"This is the {'first' if by < 0 else 'last'} step."
        return "The step before it is accepted, and stays first." if steps[index].accepted else None

    def toggle(self) -> None:
        """Leave a step out of the plan, or include it again."""
        line = self._selected()
        limits = self._limits()
        recommendation_id = line.recommendation_id
        assert recommendation_id is not None
        self._ask_for(replace(limits, without=limits.without ^ {recommendation_id}))

    def move_up(self) -> None:
        """Move the selected step up."""
        self._move(-1)

    def move_down(self) -> None:
        """Move the selected step down."""
        self._move(1)

    def _move(self, by: int) -> None:
        line = self._selected()
        order = [step.recommendation_id for step in self._shown(self.view()).plan.steps]
        assert line.number is not None
        index = line.number - 1
        order[index], order[index + by] = order[index + by], order[index]
        self._ask_for(replace(self._limits(), order=tuple(order)))

    def assume(self) -> None:
        """Open the input line for traffic, prices, a tariff or objectives."""
        request = self.view().request
        self.query_one(AskBox).ask(_ASK, "" if request is None else what_if_words(request.what_if))

    def on_ask_box_given(self, event: AskBox.Given) -> None:
        """Ask for a plan with the assumptions that were typed."""
        from pertoken.advisor.plan.what_if import what_if_of

        event.stop()
        try:
            what_if = what_if_of(event.text)
        except BadInput as error:
            self.app.notify(str(error).removeprefix("--"), severity="error", markup=False)
            return
        self.close_input()
        self.post_message(self.Requested(replace(self._request(), what_if=what_if)))

    def export(self) -> None:
        """Open the page of export formats."""
        shown = self._shown(self.view())
        self.app.push_screen(ExportPage(self.view, self.heading, shown))

    def reload(self) -> None:
        """Ask for the plan again, from the newest telemetry."""
        self.post_message(self.Requested(self.view().request, fresh=True))

    def _request(self) -> PlanRequest:
        from pertoken.advisor.planning import PlanRequest

        return self.view().request or PlanRequest()

    def _limits(self) -> PlanLimits:
        return self._request().limits

    def _ask_for(self, limits: PlanLimits) -> None:
        self.post_message(self.Requested(replace(self._request(), limits=limits)))

    def _selected(self) -> PlanLine:
        line = self.selected
        assert isinstance(line, PlanLine)
        return line

    def _shown(self, view: ScreenView) -> ShownPlan:
        shown = view.study.plan.value
        assert shown is not None
        return shown


class StepPage(CommandPage):
    """Page of one step, with its commands."""

    def __init__(
        self, view: Callable[[], ScreenView], heading: str, line: Callable[[ScreenView], PlanLine | LeftOut | None]
    ) -> None:
        self.line = line
        super().__init__(view, heading, self._sheet_of, lambda view: view.study.plan, late_s=None)

    def _sheet_of(self, view: ScreenView) -> Sheet | None:
        line = self.line(view)
        return step_sheet(line) if isinstance(line, PlanLine) else None

    def commands(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the commands of the step as it is now."""
        line = self.line(self.view())
        step = line.step if isinstance(line, PlanLine) else None
        return ((), ()) if step is None else (step.commands, step.undo)
