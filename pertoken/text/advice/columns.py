"""Advice in tables: selections, order, columns and totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pertoken.costs.report.lines import FleetReport
from pertoken.printable import natural_key
from pertoken.proof.lifecycle import DONE, PUT_OFF, UNDER_WAY
from pertoken.proof.recommendation import Money, Recommendation, State, Variant, total
from pertoken.text.amounts import amount
from pertoken.text.columns import Column
from pertoken.text.words import literal, literal_lines, marked_verdict, ratio_range, usd_range, usd_triple
from pertoken.units import HOURS_PER_MONTH, format_utc

if TYPE_CHECKING:
    from pertoken.proof.track_record import Record

NOT_EVALUATED = (State.FAILED, State.BLOCKED, State.REFUSED)
"""States without a proposal, in the order they are listed."""
_UNPRICED = "not priced"
_TO_CONFIRM = "to confirm"
PAY_MORE = "Pay more, serve more (in no total)"
UNCONFIRMED = "?"
"""Mark of open advice that the last run did not confirm, before its change."""
MAY_RISE = "may rise: "
"""Mark of advice with a loss at its low end, before its change."""


def open_advice(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return the open proposals, those of `paying_more` apart: largest low end of the bankable saving first.

    A low end that rests on a forecast counts half. Then come those whose low end is a loss, by their likely saving;
    those that free capacity alone; those with a saving if confirmed; those without a price; and those that the last
    run did not confirm.
    """
    return _surest_first(row for row in advice if not row.pays_more)


def paying_more(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return the open proposals whose bill rises by less than their capacity is worth; they are in no total."""
    return _surest_first(row for row in advice if row.pays_more)


def _surest_first(advice: Iterable[Recommendation]) -> list[Recommendation]:
    def worth(row: Recommendation) -> tuple[bool, tuple[int, ...]]:
        return row.unconfirmed is None, row.chosen.rank if row.chosen else ()

    return sorted((row for row in advice if row.state is State.OPEN), key=worth, reverse=True)


def not_evaluated(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return the results without a proposal: rules that failed first, then blocked, then refused."""
    rows = [row for row in advice if row.state in NOT_EVALUATED]
    return sorted(rows, key=lambda row: (NOT_EVALUATED.index(row.state), row.rule_id, natural_key(row.target)))


def decided(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return the advice with a decision and no verdict yet: under way first, then put off."""
    states = (*reversed(UNDER_WAY), *PUT_OFF)
    rows = [row for row in advice if row.state in states]
    return sorted(rows, key=lambda row: (states.index(row.state), row.rule_id, natural_key(row.target)))


def done(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return the advice that was applied and then judged or undone, newest first."""
    return sorted((row for row in advice if row.state in DONE), key=lambda row: -row.updated_ts)


def declined(advice: Iterable[Recommendation]) -> str | None:
    """Return a sentence with the dollars of dismissed advice, which count in no total; None if there is none."""
    dismissed = [row for row in advice if row.state is State.DISMISSED]
    if not dismissed:
        return None
    summed = [row for row in dismissed if not row.pays_more]
    figures = (("bankable", total(map(bankable, summed))), ("capacity", total(map(capacity, summed))))
    worth = ", ".join(f"{name} {usd_range(money)}" for name, money in figures if money is not None)
    return f"Declined ({len(dismissed)}): {worth or _UNPRICED} a month."


def bankable(row: Recommendation) -> Money | None:
    """Return the bankable saving of the chosen variant, else of the best: low, likely, high nano-USD a month."""
    return row.chosen.net if row.chosen else None


def capacity(row: Recommendation) -> Money | None:
    """Return the capacity saving of the chosen variant, else of the best: low, likely, high nano-USD a month."""
    return row.chosen.capacity if row.chosen else None


def if_confirmed(row: Recommendation) -> Money | None:
    """Return the net saving of the chosen variant, else of the best, once a person has confirmed what it assumes."""
    return row.chosen.if_confirmed.net if row.chosen and row.chosen.if_confirmed else None


def alternative(variant: Variant) -> str:
    """Return a variant in one line: `weights bf16 → int4: bankable $900 to $1,700`."""
    held_back = variant.if_confirmed
    unconfirmed = None if held_back is None else held_back.net if any(held_back.net) else held_back.capacity
    monies = (("bankable", variant.net), ("capacity", variant.capacity), ("if confirmed", unconfirmed))
    worth = ", ".join(f"{name} {usd_range(money)}" for name, money in monies if money is not None)
    return f"{literal(variant.title)}: {worth or _UNPRICED}"


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
    State.OUTPUT_CHANGED: "≠",
    State.INCONCLUSIVE: "?",
    State.DECAYED: "↓",
    State.ROLLED_BACK: "↺",
}
"""Mark of each result, readable without colour."""


def confidence(variant: Variant | None) -> str:
    """Return the confidence of a saving, by its weakest input: measured, forecast or listed, assumed."""
    return _CONFIDENCE.get(variant.provenance or "", "") if variant is not None else ""


def mtok_words(report: FleetReport, row: Recommendation) -> str:
    """Return the price of a million tokens of the target now and after the change: `$8.11 → ≈$5.60`.

    The bankable saving lowers the bill of the target; with the capacity saving the bill serves more tokens. Empty if
    one of them is unknown.
    """
    variant = row.chosen
    ids = (
        {row.deployment_id, *(int(edit.target) for edit in variant.edits if edit.kind == "deployment")}
        if variant
        else set()
    )
    lines = [line for line in report.deployments if line.deployment_id in ids or _serves(row, line.model)]
    priced = [(line.nano_usd, line.nano_usd_per_mtok, line.nano_usd_per_hour) for line in lines]
    if variant is None or not lines or not all(usd and mtok and hour for usd, mtok, hour in priced):
        return ""
    monthly = sum(hour or 0 for _, _, hour in priced) * HOURS_PER_MONTH
    off, more = ((money or (0, 0, 0))[1] for money in (variant.net, variant.capacity))
    if not 0 <= off < monthly or more < 0 or not (off or more):
        return ""
    # Mtok that a deployment served in the window = its dollars / its price.
    before = sum(usd or 0 for usd, _, _ in priced) / sum((usd or 0) / (mtok or 1) for usd, mtok, _ in priced)
    after = before * (monthly - off) / monthly * monthly / (monthly + more)
    return f"{amount(round(before))} → ≈{amount(round(after))}"


def _serves(row: Recommendation, model: str) -> bool:
    return row.target_kind == "service" and row.target_key == model


def record_words(record: Record | None) -> str:
    """Return measured / promised savings of a rule and its receipts: `0.92× of 4`; `no receipts` before the first."""
    if record is None or not record.receipts:
        return "no receipts"
    return f"{record.ratio:.2f}× of {record.receipts}"


def marked_title(row: Recommendation) -> str:
    """Return what an open proposal changes, with a mark where the last run did not confirm it or the bill may rise."""
    mark = "" if row.unconfirmed is None else f"{UNCONFIRMED} "
    return f"{mark}{MAY_RISE if row.may_rise else ''}{literal(row.title)}"


def _reason(row: Recommendation) -> str:
    """Return one line of the reason; of a failure the last line, which names the error."""
    lines = [line for line in literal_lines(row.reason or "") if line.strip()]
    return lines[-1 if row.state is State.FAILED else 0] if lines else ""


def _money(row: Recommendation, money: Money | None) -> str:
    if money is None and row.best and row.best.to_confirm:
        return _TO_CONFIRM
    return _UNPRICED if money is None and row.best and row.best.unpriced else usd_triple(money)


def _if_confirmed(row: Recommendation) -> str:
    saving = row.chosen.if_confirmed if row.chosen else None
    if saving is None:
        return ""
    return usd_triple(saving.net) if any(saving.net) else f"{usd_triple(saving.capacity)} capacity"


def _promised(row: Recommendation) -> str:
    """Return the bankable dollars that were promised; without any, those of capacity with this word."""
    money, more = bankable(row), capacity(row)
    if not any(money or ()) and more is not None and any(more):
        return f"{usd_triple(more)} capacity"
    return _money(row, money)


def _until(row: Recommendation) -> str:
    return "" if row.until_ts is None else format_utc(row.until_ts).partition(" ")[0]


def _likely(money: Money | None) -> int | None:
    return None if money is None else money[1]


def _ratio(row: Recommendation) -> tuple[float, float, float] | None:
    return row.best.throughput_ratio if row.best else None


def _middle(row: Recommendation) -> float | None:
    ratio = _ratio(row)
    return None if ratio is None else ratio[1]


def open_columns(
    records: Mapping[str, Record] | None = None, report: FleetReport | None = None
) -> tuple[Column[Recommendation], ...]:
    """Return the columns of open proposals.

    `records` are track records by rule id; `report` has the present prices of tokens.
    """
    known = records or {}

    def record(row: Recommendation) -> str:
        return record_words(known[row.rule_id]) if row.rule_id in known else ""

    def per_mtok(row: Recommendation) -> str:
        return "" if report is None else mtok_words(report, row)

    return (
        Column("change", marked_title, 0, min_cells=24, keep_start=True),
        Column("rule", lambda row: literal(row.rule_id), 8, min_cells=10),
        Column("bankable $/month", lambda row: _money(row, bankable(row)), 1, lambda row: _likely(bankable(row))),
        Column("SLO", lambda row: marked_verdict(row.best.slo if row.best else "unknown"), 2),
        Column("confidence", lambda row: confidence(row.best), 4),
        Column("capacity $/month", lambda row: _money(row, capacity(row)), 6, lambda row: _likely(capacity(row))),
        Column("if confirmed $/month", _if_confirmed, 12, lambda row: _likely(if_confirmed(row))),
        Column("target", lambda row: literal(row.target), 3, min_cells=14, keep_end=True),
        Column("$/Mtok", per_mtok, 5),
        Column("risk", lambda row: row.best.risk if row.best else "", 9),
        Column("effort", lambda row: EFFORTS.get(row.best.effort, "") if row.best else "", 10),
        Column("record", record, 7),
        Column("forecast", lambda row: row.best.tier.short if row.best and row.best.tier else "", 5),
        Column("throughput", lambda row: ratio_range(_ratio(row)), 11, _middle),
    )


OPEN_COLUMNS = open_columns()
PAY_MORE_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("change", marked_title, 0, min_cells=24, keep_start=True),
    Column("net $/month", lambda row: _money(row, bankable(row)), 1, lambda row: _likely(bankable(row))),
    Column("capacity $/month", lambda row: _money(row, capacity(row)), 2, lambda row: _likely(capacity(row))),
    Column("target", lambda row: literal(row.target), 3, min_cells=14, keep_end=True),
    Column("rule", lambda row: literal(row.rule_id), 4, min_cells=10),
)
DECIDED_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("change", lambda row: literal(row.change), 0, min_cells=16, keep_start=True),
    Column("state", lambda row: row.state.label, 1),
    Column("until", _until, 3),
    Column("bankable $/month", lambda row: _money(row, bankable(row)), 2, lambda row: _likely(bankable(row))),
    Column("target", lambda row: literal(row.target), 4, min_cells=10, keep_end=True),
    Column("capacity $/month", lambda row: _money(row, capacity(row)), 5, lambda row: _likely(capacity(row))),
    Column("rule", lambda row: literal(row.rule_id), 6, min_cells=10),
)
DONE_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("change", lambda row: literal(row.change), 0, min_cells=16, keep_start=True),
    Column("result", lambda row: f"{RESULTS.get(row.state, '·')} {row.state.label}", 1, min_cells=10),
    Column("promised $/month", _promised, 3, lambda row: _likely(bankable(row)) or _likely(capacity(row))),
    Column("measured", _reason, 2, min_cells=20),
    Column("target", lambda row: literal(row.target), 4, min_cells=10, keep_end=True),
    Column("rule", lambda row: literal(row.rule_id), 5, min_cells=10),
)
NOT_EVALUATED_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("rule", lambda row: literal(row.rule_id), 1, min_cells=12),
    Column("state", lambda row: row.state.lower(), 2),
    Column("reason", _reason, 0, min_cells=24, keep_start=True),
    Column("unlocked by", lambda row: literal_lines(row.remedy or "")[0], 3, min_cells=12, keep_start=True),
    Column("target", lambda row: literal(row.target), 4, min_cells=10, keep_end=True),
)
