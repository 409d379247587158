"""Sections of the computed detail of a recommendation: assumptions, change of the bill, provable savings, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pertoken.text.amounts import amount
from pertoken.text.keys import with_keys
from pertoken.text.lifecycle import journal_line, paid_line, prospect_lines, receipt_line, trial_lines
from pertoken.text.plan import end_dollars, money, sensitivity_line, values_words
from pertoken.text.sheet import Fact, Section, Sheet, sheet
from pertoken.text.study import Detail
from pertoken.text.words import literal, literal_lines

if TYPE_CHECKING:
    from pertoken.advisor.planning import Tested
    from pertoken.proof.recommendation import Recommendation
    from pertoken.savings.sensitivity import Sensitivity


BAR = 20
"""Cells of the longest bar."""


def editable(tested: Tested | None) -> tuple[Sensitivity, ...]:
    """Return the assumptions that a person can set, in the order of their numbers."""
    candidates = () if tested is None else tested.sensitivity
    return tuple(sensitivity for sensitivity in candidates if sensitivity.ends is not None)


def detail_sections(detail: Detail | None, doing: str | None) -> Sheet:
    """Return the computed sections; before they are computed, one with the progress `doing`."""
    if detail is None:
        return (Section("Its assumptions", (f"Computing: {literal(doing)}…" if doing else "Not computed yet.",)),)
    return sheet(
        Section("Its assumptions, and the saving at both ends of each", _tornado(detail, doing)),
        Section("The bill of the fleet, a month", _waterfall(detail.tested)),
        Section("What its history could prove", _provable(detail)),
    )


def _provable(detail: Detail) -> tuple[str, ...]:
    return tuple(line.strip() for line in prospect_lines(detail.prospects)[2:])


def provable_lines(detail: Detail | None, doing: str | None, error: str | None) -> tuple[str, ...]:
    """Return which savings telemetry could prove, as lines; before that is computed, its progress or the error."""
    if detail is not None:
        return _provable(detail) or ("not known: it changes no running deployment",)
    if error is not None and not doing:
        return (f"not known: {literal(error)}",)
    return (f"Computing: {literal(doing)}…" if doing else "Computing…",)


def trial_section(row: Recommendation, detail: Detail | None, now_ts: float) -> Sheet:
    """Return the section of the last trial: instructions and state while it runs, then its result."""
    if detail is None or detail.trial is None:
        return ()
    lines = trial_lines(detail.trial, detail.seen, row, int(now_ts))
    return (Section("Trial", tuple(line for line in lines if line)),)


def history_sections(detail: Detail | None) -> Sheet:
    """Return the sections of the receipts and the journal."""
    if detail is None:
        return ()
    return sheet(
        Section("Receipts (`pertoken receipt ID` prints one)", tuple(map(receipt_line, detail.receipts))),
        Section("Journal", tuple(map(journal_line, detail.journal))),
    )


def paid_section(detail: Detail | None) -> Sheet:
    """Return the savings that the receipts of a change measured; empty before its verdict."""
    receipts = () if detail is None else detail.receipts
    return sheet(Section("What it saved, as measured", tuple(map(paid_line, receipts))))


def page_section(page: str | None) -> Sheet:
    """Return the section with the documentation of the rule; empty while the rules are not loaded."""
    return () if page is None else (Section("The page of its rule", tuple(literal_lines(page.rstrip("\n")))),)


def _tornado(detail: Detail, doing: str | None) -> tuple[Fact | str, ...]:
    """Return each assumption with its number, the saving at both of its ends, and a bar between them."""
    busy = (f"Computing again: {literal(doing)}…",) if doing else ()
    tested = detail.tested
    if tested is None:
        return (*busy, *(literal_lines(detail.untested) if detail.untested else ()))
    numbers = {id(sensitivity): number for number, sensitivity in enumerate(editable(tested), 1)}
    ends = [(sensitivity, end) for sensitivity in tested.sensitivity for end in (sensitivity.low, sensitivity.high)]
    largest = max((abs(end_dollars(*end)) for end in ends), default=0)
    facts = [
        (
            f"{numbers[id(sensitivity)]}." if id(sensitivity) in numbers else "·",
            f"{sensitivity_line(sensitivity)}\n{_range_bar(sensitivity, largest)}",
        )
        for sensitivity in tested.sensitivity
    ]
    return (*facts, *_with(detail, tested), *busy)


def _with(detail: Detail, tested: Tested) -> tuple[str, ...]:
    """Return the saving with the values that a person set, or how to set one."""
    if not detail.values:
        return (with_keys("{assume} sets a numbered assumption to another value."),) if editable(tested) else ()
    estimate = tested.estimate
    missing = estimate.uncounted
    saving_words = (
        literal(missing) if missing else f"bankable {money(estimate.net)}, capacity {money(estimate.capacity)} a month"
    )
    return (
        f"With {values_words(detail.values)}: {saving_words}.",
        with_keys("{assume} changes it; an empty line restores what was measured."),
    )


def _range_bar(sensitivity: Sensitivity, largest: int) -> str:
    scale = BAR / largest if largest else 0.0
    first, last = sorted(
        round(max(0, end_dollars(sensitivity, end)) * scale) for end in (sensitivity.low, sensitivity.high)
    )
    return "·" * first + "█" * max(1, last - first) + "·" * (BAR - max(last, first + 1))


def _waterfall(tested: Tested | None) -> tuple[str, ...]:
    if tested is None or not tested.spend or tested.estimate.net is None:
        return ()
    saved = tested.estimate.net[1]
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
