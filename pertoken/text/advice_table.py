"""Advice in tables: selections, order, columns and totals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pertoken.costs.report.lines import FleetReport, Trouble
from pertoken.printable import natural_key
from pertoken.proof.recommendation import (
    DONE,
    PUT_OFF,
    UNDER_WAY,
    Money,
    Recommendation,
    State,
    Variant,
    beside_accepted,
    best_of_each_target,
    short_id,
    total,
)
from pertoken.text.amounts import amount
from pertoken.text.columns import Column
from pertoken.text.words import literal, literal_lines, marked_verdict, ratio_range, usd_range, usd_triple
from pertoken.units import HOURS_PER_MONTH, NANO_USD, counted, format_utc

if TYPE_CHECKING:
    from pertoken.proof.track_record import Record


T = TypeVar("T", int, float)
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
    """Return the open proposals without `paying_more`: largest low end of the bankable saving first.

    A low end that rests on a forecast counts half. Then come proposals with a loss as low end, by their likely saving;
    with capacity alone; with a saving if confirmed; without a price; and unconfirmed by the last run.
    """
    return _surest_first(row for row in advice if not row.pays_more)


def paying_more(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return open proposals that raise the bill by less than the worth of their capacity; they are in no total."""
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
    """Return the net saving of the chosen variant, else of the best, once a person has confirmed its assumptions."""
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
    edits = variant.edits if variant else ()
    ids = {row.deployment_id, *(int(edit.target) for edit in edits if edit.kind == "deployment")}
    service = row.target_key if row.target_kind == "service" else None
    lines = [line for line in report.deployments if line.deployment_id in ids or line.model == service]
    priced = [(line.nano_usd, line.nano_usd_per_mtok, line.nano_usd_per_hour) for line in lines]
    if variant is None or not lines or not all(usd and mtok and hour for usd, mtok, hour in priced):
        return ""
    monthly = sum(hour or 0 for _, _, hour in priced) * HOURS_PER_MONTH
    bankable_likely, capacity_likely = ((money or (0, 0, 0))[1] for money in (variant.net, variant.capacity))
    if not 0 <= bankable_likely < monthly or capacity_likely < 0 or not (bankable_likely or capacity_likely):
        return ""
    # Mtok that a deployment served in the window = its dollars / its price.
    price_before = sum(usd or 0 for usd, _, _ in priced) / sum((usd or 0) / (mtok or 1) for usd, mtok, _ in priced)
    price_after = price_before * (monthly - bankable_likely) / monthly * monthly / (monthly + capacity_likely)
    return f"{amount(round(price_before))} → ≈{amount(round(price_after))}"


def record_words(record: Record | None) -> str:
    """Return measured / promised savings of a rule and its receipts: `0.92× of 4`; `no receipts` before the first."""
    if record is None or not record.receipts:
        return "no receipts"
    return f"{record.ratio:.2f}× of {record.receipts}"


def marked_title(row: Recommendation) -> str:
    """Return the title of an open proposal, marked if the last run did not confirm it or the bill may rise."""
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
    """Return the promised bankable dollars; without any, the promised capacity dollars, so labelled."""
    money, more = bankable(row), capacity(row)
    if not any(money or ()) and more is not None and any(more):
        return f"{usd_triple(more)} capacity"
    return _money(row, money)


def _likely(figure: tuple[T, T, T] | None) -> T | None:
    return None if figure is None else figure[1]


def open_columns(
    records: Mapping[str, Record] | None = None, report: FleetReport | None = None
) -> tuple[Column[Recommendation], ...]:
    """Return the columns of open proposals.

    `records` are track records by rule id; `report` has the present prices of tokens.
    """
    record_by_rule = records or {}

    def record(row: Recommendation) -> str:
        return record_words(record_by_rule[row.rule_id]) if row.rule_id in record_by_rule else ""

    def ratio(row: Recommendation) -> tuple[float, float, float] | None:
        return row.best.throughput_ratio if row.best else None

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
        Column("throughput", lambda row: ratio_range(ratio(row)), 11, lambda row: _likely(ratio(row))),
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
    Column("until", lambda row: "" if row.until_ts is None else format_utc(row.until_ts).partition(" ")[0], 3),
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
HOUR_RATE = 75.0
"""Default of `advisor.hour_rate`, US dollars."""
EFFORT_H = {"low": 0.25, "medium": 4.0, "high": 24.0}
"""Hours of work by effort (judgement)."""
MAX_PAYBACK_MONTHS = 12


@dataclass(frozen=True, slots=True)
class Folded:
    """Open advice, split into listed and folded rows."""

    shown: tuple[Recommendation, ...]
    by_rule: tuple[tuple[Recommendation, ...], ...] = ()
    """Rows without a figure, by rule, the most frequent rule first."""
    slow: tuple[Recommendation, ...] = ()
    """Rows with a payback of over a year."""
    hour_rate: float = HOUR_RATE

    @property
    def lines(self) -> list[str]:
        """One line for each rule with rows without a figure, then one for the rows that pay back late."""
        rate = amount(round(self.hour_rate * NANO_USD))
        rows = "1 row pays" if len(self.slow) == 1 else f"{len(self.slow)} rows pay"
        late = [f"  {rows} back in over a year, with work at {rate} an hour"] if self.slow else []
        return late + [
            f"  {literal(rows[0].rule_id)}: {counted(len(rows), 'target')} could try it, without a figure "
            f"(such as {literal(rows[0].title)}, {literal(rows[0].target)})"
            for rows in self.by_rule
        ]


def folded(
    proposed: Sequence[Recommendation], troubles: Collection[Trouble] = (), hour_rate: float = HOUR_RATE
) -> Folded:
    """Return open advice with its rows folded that have no figure or pay back in over a year.

    A row that a trouble names is never folded. `hour_rate`: dollars of an hour of work.
    """
    commands = {trouble.command for trouble in troubles}
    shown: list[Recommendation] = []
    slow: list[Recommendation] = []
    by_rule: defaultdict[str, list[Recommendation]] = defaultdict(list)
    for row in proposed:
        named = f"pertoken advise show {short_id(row)}" in commands
        if named or (_has_figure(row) and not pays_back_late(row, hour_rate)):
            shown.append(row)
        elif _has_figure(row):
            slow.append(row)
        else:
            by_rule[row.rule_id].append(row)
    rules = sorted(by_rule, key=lambda rule_id: (-len(by_rule[rule_id]), rule_id))
    return Folded(tuple(shown), tuple(tuple(by_rule[rule_id]) for rule_id in rules), tuple(slow), hour_rate)


def pays_back_late(row: Recommendation, hour_rate: float) -> bool:
    """Return whether the work costs more than a year of the likely saving, of the bill or of capacity."""
    variant = row.chosen
    savings = () if variant is None else (variant.saving, variant.if_confirmed)
    monthly = max((max(saving.net[1], saving.capacity[1]) for saving in savings if saving is not None), default=0)
    work_usd = EFFORT_H.get(variant.effort if variant else "low", 0.0) * hour_rate
    return monthly * MAX_PAYBACK_MONTHS < work_usd * NANO_USD


def _has_figure(row: Recommendation) -> bool:
    """Return whether advice has dollars, also if a person has to confirm them first."""
    savings = () if row.chosen is None else (row.chosen.saving, row.chosen.if_confirmed)
    return any(any((*saving.net, *saving.capacity)) for saving in savings if saving is not None)


MAX_IDS = 6
"""Proposals that one sentence names."""


def totals(advice: Sequence[Recommendation]) -> str:
    """Return bankable and capacity dollars of the open proposals, which are never added to each other."""
    best = best_of_each_target(advice)
    assumed = Counter(line for row in best if row.best for line in row.best.assumptions)
    frequent = max(assumed, key=lambda line: assumed[line], default=None)
    more = f" (and {len(assumed) - 1} more, in the details)" if len(assumed) > 1 else ""
    notes = accepted_note(advice), forecast_note(best), unconfirmed_note(advice)
    return (
        f"{_worth(best)}\n"
        "Of changes to the same service or host only the best counts."
        + ("" if frequent is None else f"\nAssumed: {literal(frequent.partition('; ')[0])}{more}")
        + "".join(f"\n{note}" for note in notes if note)
    )


def accepted_note(advice: Sequence[Recommendation]) -> str | None:
    """Return a sentence on open proposals beside an accepted change of the same target; None without any."""
    rows = [row for row in beside_accepted(advice) if any(bankable(row) or ()) or any(capacity(row) or ())]
    if not rows:
        return None
    ids = ", ".join(map(short_id, rows[:MAX_IDS])) + (f" and {len(rows) - MAX_IDS} more" if rows[MAX_IDS:] else "")
    return (
        f"In no total, since their prices are those before an accepted change of the same target: {ids}. "
        "`pertoken plan` prices them after it."
    )


def forecast_note(rows: Sequence[Recommendation]) -> str | None:
    """Return the tiers of the forecasts of some advice, and the commands that lift them; None without a forecast."""
    counts = Counter(row.best.tier for row in rows if row.best and row.best.tier)
    if not counts:
        return None
    tier_counts = "; ".join(f"{n} {tier.short}" for tier, n in counts.most_common())
    lifted = sorted({tier.lifted_by for tier in counts if tier.lifted_by})
    lifts = f"; `{'`, `'.join(lifted)}` at the load in question lifts it" if lifted else ""
    return f"Forecasts: {tier_counts} (off by, median / 90th percentile){lifts}."


def unconfirmed_note(proposed: Sequence[Recommendation]) -> str | None:
    """Return a sentence on open proposals that the last run did not confirm; None if it confirmed all."""
    count = sum(row.unconfirmed is not None for row in proposed)
    if not count:
        return None
    rows, them = ("1 row is", "it") if count == 1 else (f"{count} rows are", "them")
    return f"{UNCONFIRMED} {rows} not confirmed by the last run: in no total; the next run confirms or closes {them}."


def _worth(best: Sequence[Recommendation]) -> str:
    """Return the worth of the proposals: a sentence for each of their kinds of dollars."""
    falls, serves_more = total(bankable(row) for row in best), total(capacity(row) for row in best)
    bill = f"Bankable {usd_range(falls)} a month: the bill falls by this." if falls and any(falls) else ""
    more = (
        f"Capacity {usd_range(serves_more)} a month: the same bill serves more."
        if serves_more and any(serves_more)
        else ""
    )
    both = f"{bill}\n{more} Not to be added." if bill and more else bill or more
    return both or "None of these has dollars yet."


def advice_note(advice: Sequence[Recommendation]) -> str:
    """Return the reason why nothing is proposed."""
    silent = len(not_evaluated(advice))
    if not silent:
        return (
            "Nothing to propose, and no rule has anything to report. Rules need a few minutes of telemetry of a served "
            "model; `pertoken doctor` reports what can be measured here."
        )
    results = "1 rule result with its reason" if silent == 1 else f"{silent} rule results with their reasons"
    return f"Nothing to propose: Not evaluated lists {results}."
