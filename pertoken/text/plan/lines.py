"""Lines of a plan: the bill now, the change of each step, and the bill after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pertoken.text.amounts import amount
from pertoken.text.columns import Column
from pertoken.text.words import UNKNOWN, literal, marked_verdict, percent, usd_triple

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Headroom, LeftOut, Plan, Step

BAR = 16
"""Cells of the bar of the bill now."""
NOW, AFTER = "now", "after"
"""Keys of the lines with the bill before and after all steps."""
_FULL, _STEP = "█", "▒"
ACCEPTED_MARK = "[✓]"
"""Mark of a step that a person accepted."""


@dataclass(frozen=True)
class PlanLine:
    """One line of the waterfall: a bill, a step, or a step that a person left out."""

    key: str
    label: str
    usd: str
    nano_usd: int | None
    """Change of the bill, or the bill; None for a step that was left out."""
    bar: str = ""
    mark: str = ""
    number: int | None = None
    step: Step | None = None
    left: LeftOut | None = None

    @property
    def recommendation_id(self) -> int | None:
        """Id of the recommendation; None for a line with a bill."""
        known = self.step or self.left
        return None if known is None else known.recommendation_id


def plan_lines(plan: Plan, without: frozenset[int]) -> tuple[PlanLine, ...]:
    """Return the bill now, the steps in their order, the steps that a person left out, and the bill after the steps."""
    removed = [proposal for proposal in plan.left_out if proposal.recommendation_id in without]
    if not plan.steps and not removed:
        return ()
    scale = BAR / plan.spend if plan.spend else 0.0
    lines = [PlanLine(NOW, "bill now", amount(plan.spend), plan.spend, _bar(0, plan.spend, scale, _FULL))]
    for number, step in enumerate(plan.steps, 1):
        change = step.spend_after - step.spend_before
        usd = f"+{amount(change)}" if change > 0 else amount(change) if change else "$0"
        bar = _bar(step.spend_after, step.spend_before, scale, _STEP)
        key = str(step.recommendation_id)
        mark = ACCEPTED_MARK if step.accepted else "[x]"
        lines.append(PlanLine(key, literal(step.title), usd, change, bar, mark, number, step))
    for proposal in removed:
        lines.append(
            PlanLine(str(proposal.recommendation_id), literal(proposal.title), "out", None, mark="[ ]", left=proposal)
        )
    after = plan.spend_after
    lines.append(PlanLine(AFTER, "bill after", amount(after), after, _bar(0, after, scale, _FULL)))
    return tuple(lines)


def others_left_out(plan: Plan, without: frozenset[int]) -> Sequence[LeftOut]:
    """Return the proposals that the search left out."""
    return [proposal for proposal in plan.left_out if proposal.recommendation_id not in without]


def headroom_words(known: Headroom | None) -> str:
    """Return the distance to the tightest latency objective: `12% left`."""
    if known is None:
        return UNKNOWN
    return f"{percent(known.share)} left" if known.share >= 0 else f"{percent(-known.share)} over"


def _bar(start: int, end: int, scale: float, mark: str) -> str:
    first, last = sorted((round(start * scale), round(end * scale)))
    return " " * first + mark * max(1 if start != end else 0, last - first)


def _number(line: PlanLine) -> str:
    return f"{line.mark} {line.number or ''}".rstrip()


def _of(line: PlanLine, field: str) -> str:
    known = line.step or line.left
    return "" if known is None else literal(str(getattr(known, field, "")))


def _slo(line: PlanLine) -> str:
    return "" if line.step is None else marked_verdict(line.step.slo)


def _capacity(line: PlanLine) -> str:
    if line.step is None:
        return ""
    return usd_triple(line.step.capacity)


PLAN_COLUMNS: tuple[Column[PlanLine], ...] = (
    Column("step", _number, 0),
    Column("change", lambda line: line.label, 0, min_cells=24, keep_start=True),
    Column("$/month", lambda line: line.usd, 0, lambda line: line.nano_usd),
    Column("bill", lambda line: line.bar.ljust(BAR), 4),
    Column("where", lambda line: _of(line, "where"), 2, min_cells=14, keep_end=True),
    Column("SLO", _slo, 1),
    Column("headroom", lambda line: "" if line.step is None else headroom_words(line.step.headroom), 5),
    Column("work", lambda line: _of(line, "effort"), 6),
    Column("risk", lambda line: _of(line, "risk"), 7),
    Column("capacity $/month", _capacity, 8),
)
LEFT_OUT_COLUMNS: tuple[Column[LeftOut], ...] = (
    Column("left out", lambda proposal: literal(proposal.rule_id), 0, min_cells=16),
    Column("why", lambda proposal: " ".join(literal(proposal.reason).split()), 0, min_cells=40, keep_start=True),
    Column("change", lambda proposal: literal(proposal.title), 1, min_cells=14, keep_start=True),
    Column("where", lambda proposal: literal(proposal.where), 2, min_cells=8, keep_end=True),
)
