"""A plan as text for 80 columns, and as plain values for JSON."""

from collections.abc import Iterable, Iterator
from textwrap import wrap

from pertoken.advisor.plan.plan import Money, Plan, Step
from pertoken.advisor.refusals import RefusedChange, folded
from pertoken.text.amounts import amount
from pertoken.text.plan.head import dropped
from pertoken.text.words import literal, slo_verdict
from pertoken.units import format_duration

WIDTH = 80
BAR = 20
"""Cells of the bar of the whole spend."""
NUMBERS = 11
"""Cells of a dollar figure."""
MAX_ASSUMPTIONS = 5
"""Assumptions that are shown; JSON has all."""
LOW, LIKELY, HIGH = range(3)


def plan_text(plan: Plan, window_s: int) -> str:
    """Return a plan as text: the bars of the bill, the steps, and the changes left out."""
    blocks = [
        [f"pertoken plan, from the last {format_duration(window_s)}"],
        list(_waterfall(plan)),
        list(_totals(plan)),
    ]
    blocks += [list(_step(number, step, plan)) for number, step in enumerate(plan.steps, 1)]
    blocks += [list(_sensitivity(plan)), list(_left_out(plan))]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _waterfall(plan: Plan) -> Iterator[str]:
    """Yield the bill before, the change by each step, and the bill after, as bars on one scale."""
    if not plan.spend:
        yield "No host with a price was seen: `pertoken prices set` names what a device-hour costs."
        return
    scale = BAR / plan.spend
    name = WIDTH - NUMBERS - BAR - 4

    def line(label: str, usd: str, start: float, end: float, mark: str) -> str:
        first, last = round(start * scale), round(end * scale)
        text = label if len(label) <= name else f"{label[: name - 1]}…"
        bar = " " * min(first, last) + mark * max(1 if start != end else 0, abs(last - first))
        return f"{text:<{name}}  {usd:>{NUMBERS}}  {bar}".rstrip()

    yield line("Bill now, a month", amount(plan.spend), 0, plan.spend, "█")
    for number, step in enumerate(plan.steps, 1):
        change = step.spend_after - step.spend_before
        usd = f"+{amount(change)}" if change > 0 else amount(change)
        tick = "✓ " if step.accepted else ""
        label = f"{number:>2}  {tick}{literal(step.where)}: {literal(step.title)}"
        yield line(label, usd, step.spend_after, step.spend_before, "▒")
    yield line("Bill after, a month", amount(plan.spend_after), 0, plan.spend_after, "█")


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


def _per_mtok(plan: Plan, before: int, after: int) -> str | None:
    """Return the dollars per Mtok before and after; None where they are not known."""
    now, then = plan.per_mtok(before), plan.per_mtok(after)
    return None if now is None or then is None else f"{amount(now)} → {amount(then)}"


def _step(number: int, step: Step, plan: Plan) -> Iterator[str]:
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
    for label, lines in (
        ("do", step.commands),
        ("undo", step.undo),
        ("note", notes),
        ("excludes", step.conflicts),
    ):
        for at, text in enumerate(lines):
            yield from _wrapped(f"  {label if at == 0 else '':<9} ", literal(text))


def _sensitivity(plan: Plan) -> Iterator[str]:
    if not plan.sensitivity:
        return
    yield "What moves the result most"
    for assumption in plan.sensitivity[:MAX_ASSUMPTIONS]:
        at = 0 if assumption.swing[0] else 1
        what = ("off the bill", "more capacity")[at]
        ends = [
            f"{end.value}: nothing, {literal(end.refused)}"
            if end.refused is not None
            else f"{end.value}: {amount((end.bankable, end.capacity)[at])}{dropped(end)}"
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
    return wrap(
        label + text,
        WIDTH,
        subsequent_indent=" " * (len(label) if indent is None else indent),
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _range(money: Money) -> str:
    low, likely, high = map(amount, money)
    return f"{likely} ({low} to {high})" if low != high and money[LOW] <= money[LIKELY] <= money[HIGH] else likely
