"""What is computed of one recommendation: what its figures rest on, where the bill goes, and what could be proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pertoken.tui.amounts import amount
from pertoken.tui.study import Detail
from pertoken.tui.text.lifecycle import journal_line, prospect_lines, receipt_line
from pertoken.tui.text.plan.head import end_dollars, money, sensitivity_line, values_words
from pertoken.tui.text.proof.trial import trial_lines
from pertoken.tui.text.sheet import Fact, Section, Sheet, sheet
from pertoken.tui.text.words import literal, literal_lines

if TYPE_CHECKING:
    from pertoken.advisor.planning import Tested
    from pertoken.proof.recommendation import Recommendation
    from pertoken.savings.assumptions.sensitivity import Sensitivity

BAR = 20
"""Cells of the largest dollars in a picture."""


def editable(tested: Tested | None) -> tuple[Sensitivity, ...]:
    """Return the assumptions that a person can set, in the order in which they are numbered."""
    return () if tested is None else tuple(each for each in tested.sensitivity if each.ends is not None)


def detail_sections(detail: Detail | None, doing: str | None) -> Sheet:
    """Return the sections of what was computed; a line about what is being computed until then."""
    if detail is None:
        return (Section("What it rests on", (f"Computing: {literal(doing)}…" if doing else "Not computed yet.",)),)
    return sheet(
        Section("What it rests on, and by how much that moves it", _tornado(detail, doing)),
        Section("The bill of the fleet, a month", _waterfall(detail.tested)),
        Section("What its history could prove", _provable(detail)),
    )


def _provable(detail: Detail) -> tuple[str, ...]:
    return tuple(line.strip() for line in prospect_lines(detail.prospects)[2:])


def provable_lines(detail: Detail | None, doing: str | None, error: str | None) -> tuple[str, ...]:
    """Return what could be proven of a recommendation; until that is computed, a line that it is not known yet."""
    if detail is not None:
        return _provable(detail) or ("not known: it changes no deployment that runs",)
    if error is not None and not doing:
        return (f"not known: {literal(error)}",)
    return (f"Computing: {literal(doing)}…" if doing else "Computing…",)


def trial_section(row: Recommendation, detail: Detail | None, now_ts: float) -> Sheet:
    """Return the last trial of a recommendation: what to restart and what it waits for, or what it showed."""
    if detail is None or detail.trial is None:
        return ()
    lines = trial_lines(detail.trial, detail.seen, row, int(now_ts))
    return (Section("Trial", tuple(line for line in lines if line)),)


def history_sections(detail: Detail | None) -> Sheet:
    """Return what became of it: what was measured after the change, and every move."""
    if detail is None:
        return ()
    return sheet(
        Section("Receipts (`pertoken receipt ID` prints one)", tuple(receipt_line(each) for each in detail.receipts)),
        Section("Journal", tuple(journal_line(each) for each in detail.journal)),
    )


def page_section(page: str | None) -> Sheet:
    """Return the page of the rule; nothing while the rules are not loaded."""
    return () if page is None else (Section("The page of its rule", tuple(literal_lines(page.rstrip("\n")))),)


def _tornado(detail: Detail, doing: str | None) -> tuple[Fact | str, ...]:
    """Return each assumption with its number, what is left at both of its ends, and a bar between these."""
    busy = (f"Computing again: {literal(doing)}…",) if doing else ()
    tested = detail.tested
    if tested is None:
        return (*busy, *(literal_lines(detail.untested) if detail.untested else ()))
    numbers = {id(each): number for number, each in enumerate(editable(tested), 1)}
    ends = [end_dollars(each, end) for each in tested.sensitivity for end in (each.low, each.high)]
    most = max((abs(each) for each in ends), default=0)
    facts = [
        (f"{numbers[id(each)]}." if id(each) in numbers else "·", f"{sensitivity_line(each)}\n{_span(each, most)}")
        for each in tested.sensitivity
    ]
    return (*facts, *_with(detail, tested), *busy)


def _with(detail: Detail, tested: Tested) -> tuple[str, ...]:
    """Return what is left with the numbers that a person set, or how to set one."""
    if not detail.values:
        return ("w sets one of those with a number to another value.",) if editable(tested) else ()
    found = tested.estimate
    missing = found.infeasible or found.unpriced or found.break_even
    now = literal(missing) if missing else f"bankable {money(found.bankable)}, capacity {money(found.capacity)} a month"
    return (f"With {values_words(detail.values)}: {now}.", "w changes it; an empty line is as measured.")


def _span(each: Sensitivity, most: int) -> str:
    scale = BAR / most if most else 0.0
    first, last = sorted(round(max(0, end_dollars(each, end)) * scale) for end in (each.low, each.high))
    return "·" * first + "█" * max(1, last - first) + "·" * (BAR - max(last, first + 1))


def _waterfall(tested: Tested | None) -> tuple[str, ...]:
    if tested is None or not tested.spend or tested.estimate.bankable is None:
        return ()
    saved = tested.estimate.bankable[1] - tested.estimate.bill_rise
    after = tested.spend - saved
    top = max(tested.spend, after)

    def line(label: str, usd: int, start: int, end: int, mark: str) -> str:
        first, last = sorted((round(start / top * BAR), round(end / top * BAR)))
        return f"{label:<12}{amount(usd):>12}  {' ' * first}{mark * max(int(start != end), last - first)}"

    return (
        line("now", tested.spend, 0, tested.spend, "█"),
        line("this change", -saved, after, tested.spend, "▒"),
        line("after", after, 0, after, "█"),
    )
