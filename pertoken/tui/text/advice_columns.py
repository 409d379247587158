"""Columns of advice, its order and its totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pertoken.costs.report.lines import FleetReport
from pertoken.printable import natural_key
from pertoken.proof.lifecycle import DONE, PUT_OFF, UNDER_WAY
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.tui.amounts import amount
from pertoken.tui.text.columns import Column
from pertoken.tui.text.words import literal, literal_lines, marked_verdict, ratio_range, usd_range, usd_triple
from pertoken.units import HOURS_PER_MONTH, format_utc

if TYPE_CHECKING:
    from pertoken.proof.track_record import Record

Money = tuple[int, int, int]
NOT_EVALUATED = (State.FAILED, State.BLOCKED, State.REFUSED)
"""States without a proposal, most surprising first."""
_UNPRICED = "not priced"


def open_advice(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """What is proposed now: largest bankable first, then largest capacity, then the unpriced."""

    def worth(each: Recommendation) -> tuple[int, int]:
        return (_likely(bankable(each)) or 0, _likely(capacity(each)) or 0)

    return sorted((each for each in advice if each.state is State.OPEN), key=worth, reverse=True)


def not_evaluated(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Rules without a proposal, each with its reason: broken ones first, then blocked, then those that refused."""
    found = [each for each in advice if each.state in NOT_EVALUATED]
    return sorted(found, key=lambda each: (NOT_EVALUATED.index(each.state), each.rule_id, natural_key(each.target)))


def decided(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return what people decided on or changes applied, and what has no verdict yet: under way, then put off."""
    states = (*reversed(UNDER_WAY), *PUT_OFF)
    found = [each for each in advice if each.state in states]
    return sorted(found, key=lambda each: (states.index(each.state), each.rule_id, natural_key(each.target)))


def done(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return what was applied and judged or undone, newest first."""
    return sorted((each for each in advice if each.state in DONE), key=lambda each: -each.updated_ts)


def declined(advice: Iterable[Recommendation]) -> str | None:
    """Return the dollars of what was dismissed, which count in no total; None where nothing was."""
    found = [each for each in advice if each.state is State.DISMISSED]
    if not found:
        return None
    figures = (("bankable", total(map(bankable, found))), ("capacity", total(map(capacity, found))))
    worth = ", ".join(f"{name} {usd_range(money)}" for name, money in figures if money is not None)
    return f"Declined ({len(found)}): {worth or _UNPRICED} a month."


def bankable(each: Recommendation) -> Money | None:
    """Return what the variant that was chosen, else the best one, takes off the bill."""
    return each.chosen.bankable if each.chosen else None


def capacity(each: Recommendation) -> Money | None:
    """Return what the variant that was chosen, else the best one, lets the same bill serve."""
    return each.chosen.capacity if each.chosen else None


def alternative(variant: Variant) -> str:
    """Return a variant in one line: `weights bf16 → int4: bankable $900 to $1,700`."""
    monies = (("bankable", variant.bankable), ("capacity", variant.capacity))
    worth = ", ".join(f"{name} {usd_range(money)}" for name, money in monies if money is not None)
    return f"{literal(variant.title)}: {worth or _UNPRICED}"


def best_of_each_target(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return what is open, best first, without what touches a service or host that a better one touches already.

    Two changes of one target may exclude each other, so that only one of them counts in a total.
    """
    touched: set[object] = set()
    kept = []
    for each in open_advice(advice):
        here = set(each.best.touches if each.best and each.best.touches else (f"{each.target_kind}:{each.target_key}",))
        if not here & touched:
            touched |= here
            kept.append(each)
    return kept


def total(monies: Iterable[Money | None]) -> Money | None:
    """Sum of (low, likely, high) nano-USD per month over what is known; None where nothing is."""
    known = [money for money in monies if money is not None]
    if not known:
        return None
    low, likely, high = (sum(column) for column in zip(*known, strict=True))
    return low, likely, high


EFFORTS = {"low": "minutes", "medium": "hours", "high": "days"}
_CONFIDENCE = {
    **dict.fromkeys(("counter", "integral", "reported"), "●●● high"),
    **dict.fromkeys(("forecast", "listed"), "●●○ fair"),
    **dict.fromkeys(("assumed", "bound"), "●○○ low"),
}
RESULTS = {
    State.REALIZED: "✓",
    State.PARTIAL: "◐",
    State.NO_EFFECT: "○",
    State.REGRESSED: "✗",
    State.INCONCLUSIVE: "?",
    State.DECAYED: "↓",
    State.ROLLED_BACK: "↺",
}
"""Mark of each result, which reads without colour."""


def confidence(variant: Variant | None) -> str:
    """Return by its least certain input how sure a figure is: measured, forecast or listed, assumed."""
    return _CONFIDENCE.get(variant.provenance or "", "") if variant is not None else ""


def mtok_words(report: FleetReport, each: Recommendation) -> str:
    """Return what a million tokens of its target cost, and about what after it: `$8.11 → ≈$5.60`; empty if unknown.

    The bill of the target falls by what is bankable; with more capacity the rest of it serves more tokens.
    """
    variant = each.chosen
    ids = (
        {each.deployment_id, *(int(edit.target) for edit in variant.edits if edit.kind == "deployment")}
        if variant
        else set()
    )
    lines = [line for line in report.deployments if line.deployment_id in ids or _serves(each, line.model)]
    priced = [(line.nano_usd, line.nano_usd_per_mtok, line.nano_usd_per_hour) for line in lines]
    if variant is None or not lines or not all(usd and mtok and hour for usd, mtok, hour in priced):
        return ""
    monthly = sum(hour or 0 for _, _, hour in priced) * HOURS_PER_MONTH
    off, more = ((money or (0, 0, 0))[1] for money in (variant.bankable, variant.capacity))
    if not 0 <= off < monthly or more < 0 or not (off or more):
        return ""
    # What each served in this window, in Mtok, is its dollars over its price.
    before = sum(usd or 0 for usd, _, _ in priced) / sum((usd or 0) / (mtok or 1) for usd, mtok, _ in priced)
    after = before * (monthly - off) / monthly * monthly / (monthly + more)
    return f"{amount(round(before))} → ≈{amount(round(after))}"


def _serves(each: Recommendation, model: str) -> bool:
    return each.target_kind == "service" and each.target_key == model


def record_words(record: Record | None) -> str:
    """Return which part of its promises a rule kept: `0.92× of 4`; `no receipts` before the first."""
    if record is None or not record.receipts:
        return "no receipts"
    return f"{record.ratio:.2f}× of {record.receipts}"


def _reason(each: Recommendation) -> str:
    """One line of it; the last of an error, which names it."""
    lines = [line for line in literal_lines(each.reason or "") if line.strip()]
    return lines[-1 if each.state is State.FAILED else 0] if lines else ""


def _money(each: Recommendation, money: Money | None) -> str:
    return _UNPRICED if money is None and each.best and each.best.unpriced else usd_triple(money)


def _until(each: Recommendation) -> str:
    return "" if each.until_ts is None else format_utc(each.until_ts).partition(" ")[0]


def _likely(money: Money | None) -> int | None:
    return None if money is None else money[1]


def _ratio(each: Recommendation) -> tuple[float, float, float] | None:
    return each.best.throughput_ratio if each.best else None


def _middle(each: Recommendation) -> float | None:
    ratio = _ratio(each)
    return None if ratio is None else ratio[1]


def open_columns(
    records: Mapping[str, Record] | None = None, report: FleetReport | None = None
) -> tuple[Column[Recommendation], ...]:
    """Return the columns of what is proposed; a column of which nothing is known is left out.

    `records` are the track records by rule, `report` is what tokens cost now.
    """
    known = records or {}

    def record(each: Recommendation) -> str:
        return record_words(known[each.rule_id]) if each.rule_id in known else ""

    def per_mtok(each: Recommendation) -> str:
        return "" if report is None else mtok_words(report, each)

    return (
        Column("change", lambda each: literal(each.title), 0, least=20),
        Column("rule", lambda each: literal(each.rule_id), 8, least=10),
        Column("bankable $/month", lambda each: _money(each, bankable(each)), 1, lambda each: _likely(bankable(each))),
        Column("SLO", lambda each: marked_verdict(each.best.slo if each.best else "unknown"), 2),
        Column("confidence", lambda each: confidence(each.best), 4),
        Column("capacity $/month", lambda each: _money(each, capacity(each)), 5, lambda each: _likely(capacity(each))),
        Column("target", lambda each: literal(each.target), 3, least=10, keep_end=True),
        Column("$/Mtok", per_mtok, 6),
        Column("risk", lambda each: each.best.risk if each.best else "", 9),
        Column("effort", lambda each: EFFORTS.get(each.best.effort, "") if each.best else "", 10),
        Column("record", record, 7),
        Column("throughput", lambda each: ratio_range(_ratio(each)), 11, _middle),
    )


OPEN_COLUMNS = open_columns()
DECIDED_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("change", lambda each: literal(each.chosen.title if each.chosen else each.title), 0, least=16),
    Column("state", lambda each: each.state.label, 1),
    Column("until", _until, 3),
    Column("bankable $/month", lambda each: _money(each, bankable(each)), 2, lambda each: _likely(bankable(each))),
    Column("capacity $/month", lambda each: _money(each, capacity(each)), 4, lambda each: _likely(capacity(each))),
    Column("target", lambda each: literal(each.target), 5, least=10, keep_end=True),
    Column("rule", lambda each: literal(each.rule_id), 6, least=10),
)
DONE_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("change", lambda each: literal(each.chosen.title if each.chosen else each.title), 0, least=16),
    Column("result", lambda each: f"{RESULTS.get(each.state, '·')} {each.state.label}", 1, least=10),
    Column("promised $/month", lambda each: _money(each, bankable(each)), 3, lambda each: _likely(bankable(each))),
    Column("measured", _reason, 2, least=20),
    Column("target", lambda each: literal(each.target), 4, least=10, keep_end=True),
    Column("rule", lambda each: literal(each.rule_id), 5, least=10),
)
NOT_EVALUATED_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("rule", lambda each: literal(each.rule_id), 1, least=16),
    Column("state", lambda each: each.state.lower(), 2),
    Column("reason", _reason, 0, least=30, keep_start=True),
    Column("what would unlock it", lambda each: literal_lines(each.remedy or "")[0], 3, least=16, keep_start=True),
    Column("target", lambda each: literal(each.target), 4, least=10, keep_end=True),
)
