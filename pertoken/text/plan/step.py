"""Details of a step of a plan, or of a proposal that was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pertoken.text.advice.sheet import HOW_TO_APPLY, HOW_TO_UNDO
from pertoken.text.amounts import amount
from pertoken.text.plan.head import money
from pertoken.text.plan.lines import PlanLine, headroom_words
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import NONE_FOUND, literal, literal_lines, slo_verdict_reason

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import LeftOut, Step


def step_sheet(line: PlanLine) -> Sheet:
    """Return the details of one line of a plan."""
    if line.step is not None:
        return _step(line.step, line.number)
    return left_out_sheet(line.left) if line.left is not None else ()


def left_out_sheet(left: LeftOut) -> Sheet:
    """Return the reason why a proposal was left out."""
    return sheet(
        Section(literal(left.title), (("where", literal(left.where)), ("rule", literal(left.rule_id)))),
        Section("Why it was left out", literal_lines(left.reason)),
    )


def _step(step: Step, number: int | None) -> Sheet:
    slo = slo_verdict_reason(step.slo)
    if step.headroom is not None:
        known = step.headroom
        slo += f"; {known.figure} {known.likely_ms:.0f} of {known.limit_ms:.0f} ms, {headroom_words(known)}"
    return sheet(
        Section(
            f"Step {number}: {literal(step.title)}",
            (
                ("where", literal(step.where)),
                ("rule", literal(step.rule_id)),
                *((("state", "accepted: the other steps start from it"),) if step.accepted else ()),
                ("bill", f"{amount(step.spend_before)} → {amount(step.spend_after)} a month"),
                ("bankable", f"{money(step.bankable)}  (after the steps before it)"),
                ("capacity", _capacity(step)),
                ("latency objective", slo),
                *((("forecast", literal(step.tier.words)),) if step.tier else ()),
                ("work, risk", f"{step.effort}, {step.risk}"),
                *((("hosts given back", literal(", ".join(step.released))),) if step.released else ()),
            ),
        ),
        Section(HOW_TO_APPLY, _commands(step.commands)),
        Section(HOW_TO_UNDO, _commands(step.undo)),
        Section("Changes that it excludes", tuple(f"· {literal(conflict)}" for conflict in step.conflicts)),
        Section("Objections", tuple(f"· {literal(objection)}" for objection in step.against)),
        Section("Assumed", tuple(f"· {literal(assumption)}" for assumption in step.assumptions)),
    )


def _capacity(step: Step) -> str:
    if step.capacity[1] < 0:
        return f"uses up {amount(-step.capacity[1])} a month that an earlier step freed"
    return money(step.capacity) if any(step.capacity) else NONE_FOUND


def _commands(commands: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for command in commands for line in literal_lines(command))
