"""Text of a plan: its head, its lines and a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from pertoken.advisor.plan.plan import Money, Plan, PlanStep
from pertoken.advisor.refusals import RefusedChange, folded
from pertoken.text.advice_sheet import HOW_TO_APPLY, HOW_TO_UNDO, command_lines
from pertoken.text.amounts import amount
from pertoken.text.columns import Column
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import (
    NONE_FOUND,
    UNKNOWN,
    literal,
    literal_lines,
    marked_verdict,
    percent,
    slo_verdict,
    slo_verdict_reason,
    usd_triple,
)
from pertoken.units import NANO_USD, counted, format_duration

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Headroom, LeftOut
    from pertoken.advisor.plan.what_if import WhatIf
    from pertoken.savings.sensitivity import At, Sensitivity


EXAMPLE = "traffic=1.5 price=H100=2.10 tariff=0.12 slo=chat:ttft_p95<800ms"
"""Example of assumptions in the syntax of `advisor.plan.what_if`; tariff is in dollars per kWh."""


def headline(plan: Plan) -> str:
    """Return the bankable saving of all steps together as a sentence."""
    n = len(plan.steps)
    if not plan.spend:
        return "No host has a price: `pertoken prices set` sets the price of a device-hour."
    if not n:
        return f"No step lowers the bill of {amount(plan.spend)} a month."
    ticked = sum(step.accepted for step in plan.steps)
    steps = counted(n, "step") + (f", {ticked} accepted" if ticked else "")
    if not any(plan.bankable):
        return f"The bill of {amount(plan.spend)} a month stays ({steps})."
    return f"Bankable {money(plan.bankable)} a month of a bill of {amount(plan.spend)} ({steps})."


def capacity_line(plan: Plan) -> str:
    """Return the capacity saving as a sentence; it is never added to the bankable saving."""
    if not any(plan.capacity):
        return "The same bill serves no more than now."
    return f"Capacity {money(plan.capacity)} a month: the same bill serves more; never added."


def weakest(plan: Plan) -> str | None:
    """Return the assumption with the largest effect, and the savings at both of its ends; None without any."""
    return f"Least certain: {sensitivity_line(plan.sensitivity[0])}." if plan.sensitivity else None


def money(usd_range: Money | None) -> str:
    """Return likely dollars with their range: `$1,500 ($1,200 to $1,818)`; `none found` if there are none."""
    if usd_range is None or not any(usd_range):
        return NONE_FOUND
    low, likely, high = map(amount, usd_range)
    return likely if low == high else f"{likely} ({low} to {high})"


def sensitivity_line(sensitivity: Sensitivity) -> str:
    """Return one assumption with the savings at both of its ends."""
    ends = "; ".join(_end(sensitivity, end) for end in (sensitivity.low, sensitivity.high))
    return f"{literal(sensitivity.assumption)} ({ends})"


def end_dollars(sensitivity: Sensitivity, end: At) -> int:
    """Return the saving at one end, nano-USD a month: bankable if the assumption changes it, else capacity."""
    return end.bankable if sensitivity.swing[0] else end.capacity


def _end(sensitivity: Sensitivity, end: At) -> str:
    if end.refused is not None:
        return f"{literal(end.value)}: nothing, {literal(end.refused)}"
    what = "" if sensitivity.swing[0] else " of capacity"
    return f"{literal(end.value)}: {amount(end_dollars(sensitivity, end))}{what}{dropped(end)}"


def dropped(end: At) -> str:
    """Return how many steps are not counted at an end: ` without 2 steps`; empty where all are."""
    return f" without {counted(len(end.without), 'step')}" if end.without else ""


def what_if_words(what_if: WhatIf) -> str:
    """Return assumptions in the syntax that a person types: `traffic=1.5 tariff=0.12`."""
    words = [f"traffic={what_if.traffic:g}"] if what_if.traffic != 1 else []
    for price in what_if.prices:
        words.append(f"price={_quoted(price.selector)}={(price.nano_usd_per_device_hour or 0) / NANO_USD:g}")
    words += [f"tariff={what_if.tariff_usd_per_kwh:g}"] if what_if.tariff_usd_per_kwh is not None else []
    for service, slo in what_if.slo.items():
        limits = {name.removesuffix("_ms"): getattr(slo, name) for name in _OBJECTIVES}
        parts = [f"{name}<{limit:g}ms" for name, limit in limits.items() if limit is not None]
        words.append(f"slo={_quoted(service)}:{','.join(parts)}")
    return " ".join(words)


_OBJECTIVES = ("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms")


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def values_words(values: Mapping[str, float]) -> str:
    """Return the values that a person set, with their assumptions."""
    return "; ".join(f"{literal(name)} = {value:g}" for name, value in values.items())


SCREEN_BAR = 16
"""Cells of the bar of the bill now."""
NOW, AFTER = "now", "after"
"""Keys of the lines with the bill before and after all steps."""
_FULL, _STEP = "█", "▒"
ACCEPTED_MARK = "[✓]"


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
    step: PlanStep | None = None
    left_out: LeftOut | None = None

    @property
    def recommendation_id(self) -> int | None:
        """Id of the recommendation; None for a line with a bill."""
        entry = self.step or self.left_out
        return None if entry is None else entry.recommendation_id


def plan_lines(plan: Plan, without: frozenset[int]) -> tuple[PlanLine, ...]:
    """Return the bill now, the steps in their order, the steps that a person left out, and the bill after the steps."""
    removed = [proposal for proposal in plan.left_out if proposal.recommendation_id in without]
    if not plan.steps and not removed:
        return ()
    scale = SCREEN_BAR / plan.spend if plan.spend else 0.0
    lines = [PlanLine(NOW, "bill now", amount(plan.spend), plan.spend, _bar(0, plan.spend, scale, _FULL))]
    for number, step in enumerate(plan.steps, 1):
        change = step.spend_after - step.spend_before
        usd = f"+{amount(change)}" if change > 0 else amount(change) if change else "$0"
        bar = _bar(step.spend_after, step.spend_before, scale, _STEP)
        key = str(step.recommendation_id)
        mark = ACCEPTED_MARK if step.accepted else "[x]"
        lines.append(PlanLine(key, literal(step.title), usd, change, bar, mark, number, step))
    for proposal in removed:
        key = str(proposal.recommendation_id)
        lines.append(PlanLine(key, literal(proposal.title), "out", None, mark="[ ]", left_out=proposal))
    after = plan.spend_after
    lines.append(PlanLine(AFTER, "bill after", amount(after), after, _bar(0, after, scale, _FULL)))
    return tuple(lines)


def others_left_out(plan: Plan, without: frozenset[int]) -> Sequence[LeftOut]:
    """Return the proposals that the search left out."""
    return [proposal for proposal in plan.left_out if proposal.recommendation_id not in without]


def headroom_words(headroom: Headroom | None) -> str:
    """Return the distance to the tightest latency objective: `12% left`."""
    if headroom is None:
        return UNKNOWN
    return f"{percent(headroom.share)} left" if headroom.share >= 0 else f"{percent(-headroom.share)} over"


def _bar(start: int, end: int, scale: float, mark: str) -> str:
    first, last = sorted((round(start * scale), round(end * scale)))
    return " " * first + mark * max(1 if start != end else 0, last - first)


def _of(line: PlanLine, field: str) -> str:
    entry = line.step or line.left_out
    return "" if entry is None else literal(str(getattr(entry, field, "")))


PLAN_COLUMNS: tuple[Column[PlanLine], ...] = (
    Column("step", lambda line: f"{line.mark} {line.number or ''}".rstrip(), 0),
    Column("change", lambda line: line.label, 0, min_cells=24, keep_start=True),
    Column("$/month", lambda line: line.usd, 0, lambda line: line.nano_usd),
    Column("bill", lambda line: line.bar.ljust(SCREEN_BAR), 4),
    Column("where", lambda line: _of(line, "where"), 2, min_cells=14, keep_end=True),
    Column("SLO", lambda line: "" if line.step is None else marked_verdict(line.step.slo), 1),
    Column("headroom", lambda line: "" if line.step is None else headroom_words(line.step.headroom), 5),
    Column("work", lambda line: _of(line, "effort"), 6),
    Column("risk", lambda line: _of(line, "risk"), 7),
    Column("capacity $/month", lambda line: "" if line.step is None else usd_triple(line.step.capacity), 8),
)
LEFT_OUT_COLUMNS: tuple[Column[LeftOut], ...] = (
    Column("left out", lambda proposal: literal(proposal.rule_id), 0, min_cells=16),
    Column("why", lambda proposal: " ".join(literal(proposal.reason).split()), 0, min_cells=40, keep_start=True),
    Column("change", lambda proposal: literal(proposal.title), 1, min_cells=14, keep_start=True),
    Column("where", lambda proposal: literal(proposal.where), 2, min_cells=8, keep_end=True),
)
WIDTH = 80
TEXT_BAR = 20
"""Cells of the bar of the whole spend."""
NUMBERS = 11
"""Cells of a dollar figure."""
MAX_ASSUMPTIONS = 5
"""Assumptions that are shown; JSON has all."""
LOW, LIKELY, HIGH = range(3)


def plan_text(plan: Plan, window_s: int) -> str:
    """Return a plan as text: the bars of the bill, the steps, and the changes left out."""
    blocks = (
        (f"pertoken plan, from the last {format_duration(window_s)}",),
        _waterfall(plan),
        _totals(plan),
        *(_step(number, step, plan) for number, step in enumerate(plan.steps, 1)),
        _sensitivity(plan),
        _left_out(plan),
    )
    return "\n\n".join(filter(None, map("\n".join, blocks))) + "\n"


def _waterfall(plan: Plan) -> Iterator[str]:
    """Yield the bill before, the change by each step, and the bill after, as bars on one scale."""
    if not plan.spend:
        yield "No host with a price was seen: `pertoken prices set` names what a device-hour costs."
        return
    scale = TEXT_BAR / plan.spend
    name = WIDTH - NUMBERS - TEXT_BAR - 4

    def line(label: str, usd: str, start: int, end: int, mark: str) -> str:
        text = label if len(label) <= name else f"{label[: name - 1]}…"
        return f"{text:<{name}}  {usd:>{NUMBERS}}  {_bar(start, end, scale, mark)}".rstrip()

    yield line("Bill now, a month", amount(plan.spend), 0, plan.spend, _FULL)
    for number, step in enumerate(plan.steps, 1):
        change = step.spend_after - step.spend_before
        usd = f"+{amount(change)}" if change > 0 else amount(change)
        tick = "✓ " if step.accepted else ""
        label = f"{number:>2}  {tick}{literal(step.where)}: {literal(step.title)}"
        yield line(label, usd, step.spend_after, step.spend_before, _STEP)
    yield line("Bill after, a month", amount(plan.spend_after), 0, plan.spend_after, _FULL)


def _totals(plan: Plan) -> Iterator[str]:
    if not plan.steps:
        yield "No steps: no proposal saves dollars that can be counted."
    else:
        yield f"Off the bill    {_range(plan.bankable)} a month"
        yield f"More capacity   {_range(plan.capacity)} a month, on the same bill"
    if per_mtok := _per_mtok(plan, plan.spend, plan.spend_after):
        yield f"Per Mtok        {per_mtok} of all services"
    if plan.unpriced_hosts:
        yield from _wrapped("Without a price, and not counted: ", ", ".join(map(literal, plan.unpriced_hosts)))
    if not plan.exact:
        yield from _wrapped("", "Too many combinations of changes to try all: other plans may be better.")


def _per_mtok(plan: Plan, spend_before: int, spend_after: int) -> str | None:
    """Return the dollars per Mtok before and after; None where they are not known."""
    mtok_before, mtok_after = plan.per_mtok(spend_before), plan.per_mtok(spend_after)
    return None if mtok_before is None or mtok_after is None else f"{amount(mtok_before)} → {amount(mtok_after)}"


def _step(number: int, step: PlanStep, plan: Plan) -> Iterator[str]:
    state = ", accepted ✓" if step.accepted else ""
    yield f"Step {number}: {literal(step.rule_id)}, {literal(step.where)}{state}"
    yield from _wrapped("  ", literal(step.title))
    yield from _wrapped("  bill      ", f"{amount(step.spend_before)} → {amount(step.spend_after)} a month")
    if per_mtok := _per_mtok(plan, step.spend_before, step.spend_after):
        yield f"  per Mtok  {per_mtok}"
    if any(step.capacity):
        yield from _wrapped("  capacity  ", f"{_range(step.capacity)} a month")
    yield f"  work      {step.effort}; risk: {step.risk}; SLO: {slo_verdict(step.slo)}"
    if step.tier:
        yield from _wrapped("  forecast  ", step.tier.words)
    if step.released:
        yield from _wrapped("  release   ", ", ".join(map(literal, step.released)))
    notes = (*step.against, *step.assumptions)
    for label, lines in (("do", step.commands), ("undo", step.undo), ("note", notes), ("excludes", step.conflicts)):
        for line_index, text in enumerate(lines):
            yield from _wrapped(f"  {label if line_index == 0 else '':<9} ", literal(text))


def _sensitivity(plan: Plan) -> Iterator[str]:
    if not plan.sensitivity:
        return
    yield "What moves the result most"
    for assumption in plan.sensitivity[:MAX_ASSUMPTIONS]:
        what = "off the bill" if assumption.swing[0] else "more capacity"
        ends = [
            f"{end.value}: nothing, {literal(end.refused)}"
            if end.refused is not None
            else f"{end.value}: {amount(end_dollars(assumption, end))}{dropped(end)}"
            for end in (assumption.low, assumption.high)
        ]
        yield from _wrapped("  ", f"{literal(assumption.assumption)} ({what}): {'; '.join(ends)}", indent=4)


def _left_out(plan: Plan) -> Iterator[str]:
    if not plan.left_out:
        return
    yield "Left out"
    reasons = folded(RefusedChange(change.rule_id, change.reason, change.where) for change in plan.left_out)
    for reason in reasons:
        yield from _wrapped(f"  {literal(reason.code)}: ", literal(reason.reason), indent=4)


def _wrapped(label: str, text: str, indent: int | None = None) -> Iterable[str]:
    """Return text after a label, in lines of the width; a word that is longer stays whole, so that it can be copied."""
    hanging = " " * (len(label) if indent is None else indent)
    return wrap(
        label + text,
        WIDTH,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def _range(money: Money) -> str:
    low, likely, high = map(amount, money)
    return f"{likely} ({low} to {high})" if low != high and money[LOW] <= money[LIKELY] <= money[HIGH] else likely


def step_sheet(line: PlanLine) -> Sheet:
    """Return the details of one line of a plan."""
    if line.step is not None:
        return _step_lines(line.step, line.number)
    return left_out_sheet(line.left_out) if line.left_out is not None else ()


def left_out_sheet(left_out: LeftOut) -> Sheet:
    """Return the reason why a proposal was left out."""
    return sheet(
        Section(literal(left_out.title), (("where", literal(left_out.where)), ("rule", literal(left_out.rule_id)))),
        Section("Why it was left out", literal_lines(left_out.reason)),
    )


def _step_lines(step: PlanStep, number: int | None) -> Sheet:
    slo = slo_verdict_reason(step.slo)
    if step.headroom is not None:
        headroom = step.headroom
        slo += f"; {headroom.figure} {headroom.likely_ms:.0f} of {headroom.limit_ms:.0f} ms, {headroom_words(headroom)}"
    return sheet(
        Section(
            f"Step {number}: {literal(step.title)}",
            (
                ("where", literal(step.where)),
                ("rule", literal(step.rule_id)),
                *((("state", "accepted: the other steps start from it"),) if step.accepted else ()),
                ("bill", f"{amount(step.spend_before)} → {amount(step.spend_after)} a month"),
                ("bankable", f"{money(step.bankable)}  (after the steps before it)"),
                ("capacity", _capacity_line(step)),
                ("latency objective", slo),
                *((("forecast", literal(step.tier.words)),) if step.tier else ()),
                ("work, risk", f"{step.effort}, {step.risk}"),
                *((("hosts given back", literal(", ".join(step.released))),) if step.released else ()),
            ),
        ),
        Section(HOW_TO_APPLY, command_lines(step.commands)),
        Section(HOW_TO_UNDO, command_lines(step.undo)),
        Section("Changes that it excludes", tuple(f"· {literal(conflict)}" for conflict in step.conflicts)),
        Section("Objections", tuple(f"· {literal(objection)}" for objection in step.against)),
        Section("Assumed", tuple(f"· {literal(assumption)}" for assumption in step.assumptions)),
    )


def _capacity_line(step: PlanStep) -> str:
    if step.capacity[1] < 0:
        return f"uses up {amount(-step.capacity[1])} a month that an earlier step freed"
    return money(step.capacity) if any(step.capacity) else NONE_FOUND
