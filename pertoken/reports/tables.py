"""Tables of a report as text cells, for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from pertoken.costs.ledger import BillTotal
from pertoken.costs.report.lines import Figure, Trouble
from pertoken.costs.spend import Spend
from pertoken.proof.judging.verifier import edits_text
from pertoken.proof.recommendation import Money, Recommendation, State, full_id, short_id
from pertoken.proof.verdicts import Verdict
from pertoken.reports.figures import ReportFigures
from pertoken.text.advice_sheet import affected, could_break, how_sure, series_label, slower, why
from pertoken.text.advice_table import MAY_RISE
from pertoken.text.amounts import headline, price
from pertoken.text.billing import energy_note
from pertoken.units import NANO_USD, format_count, format_usd, format_utc

UNKNOWN = "–"
MAX_ROWS = 200
"""Rows of a table; CSV and FOCUS have all."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with the command that prints the same."""

    title: str
    columns: tuple[str, ...]
    """A name that starts with `>` marks a column of numbers."""
    rows: tuple[tuple[str, ...], ...]
    empty: str
    """Text in place of rows."""
    command: str
    notes: tuple[str, ...] = ()


def tables(report: ReportFigures) -> tuple[Table, ...]:
    """Return the tables of a report, in their order."""
    hours = f"--hours {report.period.hours}" + (f" --at {report.period.at}" if report.period.dated else "")
    return (
        now_table(report),
        models_table(report, f"pertoken costs --by model {hours}"),
        figures_table(report, f"pertoken costs --figures {hours}"),
        spend_table("Chargeback by team", report.teams, f"pertoken costs --by team {hours}"),
        spend_table("Chargeback by tenant", report.tenants, f"pertoken costs --by tenant {hours}"),
        *(spend_table(f"By {bill.by}", bill, f"pertoken costs --by {bill.by} {hours}") for bill in report.owners),
        found_table(report),
        taken_table(report),
        regressions_table(report),
        changes_table(report),
        paying_more_table(report),
    )


def now_table(report: ReportFigures) -> Table:
    """Return the troubles at the end of the period, with their cost and the command against each."""
    rows = [
        (line.kind.value, line.target, line.reason, format_usd(line.nano_usd_per_hour), line.command)
        for line in report.troubles[:MAX_ROWS]
    ]
    columns = ("what", "target", "why", ">$/hour", "command")
    return Table("Now", columns, tuple(rows), "Nothing is wrong.", "pertoken top --once")


def models_table(report: ReportFigures, command: str) -> Table:
    """Return dollars, tokens and $/Mtok by model, and dollars of no model."""
    return spend_table("Models", report.models, command)


def spend_table(title: str, spend: Spend, command: str) -> Table:
    """Return the lines of a bill with their share of it."""
    total_nano = spend.nano_usd
    rows = [
        (
            line.name,
            UNKNOWN if total_nano is None else format_usd(line.nano_usd),
            f"{line.nano_usd / total_nano:.1%}" if total_nano else UNKNOWN,
            format_count(line.tokens),
            UNKNOWN if total_nano is None else format_usd(price(line)),
        )
        for line in spend.lines
    ]
    if total_nano is not None:
        rows = [*rows[:MAX_ROWS], ("together", format_usd(total_nano), "100.0%", "", "")]
    columns = (title.split()[-1].removesuffix("s").lower(), ">dollars", ">share", ">tokens", f">{headline().caption}")
    return Table(title, columns, tuple(rows), "Nothing was recorded in this period.", command, tuple(spend.notes))


def figures_table(report: ReportFigures, command: str) -> Table:
    """Return the other figures per token and dollar, by model; energy is that of the servers."""
    grid = report.energy_terms.grid
    rows = [
        (
            figure.model,
            _usd(figure.usd_per_generated_mtok),
            _usd(figure.usd_per_goodput_mtok),
            _usd(figure.usd_per_1000_requests),
            _number(figure.server.j_per_token),
            _number(figure.server.kwh),
            *(() if grid is None else (_number(figure.server.co2e_kg),)),
            _usd(figure.idle_usd),
        )
        for figure in report.figures
    ]
    columns = (
        "model",
        ">$/generated Mtok",
        ">$/goodput Mtok",
        ">$/1,000 requests",
        ">J/token",
        ">kWh",
        *(() if grid is None else (">kg CO2e",)),
        ">idle dollars",
    )
    empty = "No model was served in this period."
    return Table("Figures by model", columns, tuple(rows), empty, command, (energy_note(report.energy_terms),))


def found_table(report: ReportFigures) -> Table:
    """Return the open recommendations: those in the total, then those that the last advice run did not confirm."""
    unconfirmed = report.savings.unconfirmed
    rows = [
        (
            short_id(row),
            _marked_title(row),
            row.target,
            why(row) or "",
            *_worth(row),
            _if_confirmed(row),
            _tier(row),
            *_risks(row),
        )
        for row in (*report.savings.folds.shown, *unconfirmed)[:MAX_ROWS]
    ]
    money = (">bankable/month", ">capacity/month", ">if confirmed/month")
    risks = ("how sure", "what gets slower", "what could break", "affected")
    columns = ("id", "change", "target", "why", *money, "forecast", *risks)
    refused = len(report.savings.refused)
    notes = tuple(line.strip() for line in report.savings.folds.lines)
    if refused:
        notes += (f"{refused} rules refused or could not run: `pertoken advise` prints the reasons.",)
    if unconfirmed:
        notes += ("The last advice run did not confirm the rows that are marked so: they are in no total.",)
    lifted = {row.best.tier.lifted_by for row in report.savings.proposed if row.best and row.best.tier} - {None}
    if lifted:
        notes += (f"Forecasts are off by this (median / 90th percentile); `{min(map(str, lifted))}` lifts them.",)
    empty = "Nothing is proposed."
    return Table("Savings found", columns, tuple(rows), empty, "pertoken advise show ID", notes)


def _tier(row: Recommendation) -> str:
    return row.best.tier.short if row.best and row.best.tier else ""


def paying_more_table(report: ReportFigures) -> Table:
    """Return open recommendations that raise the bill by less than the worth of their capacity."""
    rows = [
        (short_id(row), _marked_title(row), row.target, *_worth(row), row.rule_id)
        for row in report.savings.paying_more[:MAX_ROWS]
    ]
    columns = ("id", "change", "target", ">net/month", ">capacity/month", "rule")
    notes = ("The bill rises by these: they are in no total.",) if rows else ()
    empty = "No change is proposed that raises the bill."
    return Table("Pay more, serve more", columns, tuple(rows), empty, "pertoken advise", notes)


def taken_table(report: ReportFigures) -> Table:
    """Return recommendations that were accepted or applied, and not undone."""
    rows = [
        (short_id(row), row.change, row.target, row.state.label, *_worth(row))
        for row in report.savings.taken[:MAX_ROWS]
    ]
    columns = ("id", "change", "target", "state", ">bankable/month", ">capacity/month")
    empty = "Nothing was accepted or applied."
    return Table("Savings taken", columns, tuple(rows), empty, "pertoken advise show ID")


def regressions_table(report: ReportFigures) -> Table:
    """Return the verdicts on changes that made tokens dearer."""
    empty = "No verdict of this period finds a change that made tokens dearer."
    return _verdicts_table("Regressions", report.regressions, empty)


def changes_table(report: ReportFigures) -> Table:
    """Return the verdicts on all changes of configuration."""
    empty = "No verdict was passed in this period, and none is pending on a change in it."
    return _verdicts_table("Changes of configuration", report.verdicts, empty)


def _verdicts_table(title: str, verdicts: Sequence[Verdict], empty: str) -> Table:
    """Return verdicts; the time is that of the verdict, of a pending one that of the change."""
    rows = [
        (format_utc(verdict.dated_ts), verdict.name, edits_text(verdict.edits), *judgement_text(verdict))
        for verdict in verdicts[:MAX_ROWS]
    ]
    columns = ("when", "deployment", "change", "verdict", ">cost per token")
    return Table(title, columns, tuple(rows), empty, "pertoken advise")


def judgement_text(verdict: Verdict) -> tuple[str, str]:
    """Return the verdict and its effect with the interval."""
    judgement = verdict.judgement
    result = judgement.label
    if judgement.effect is None:
        return result, UNKNOWN
    low, likely, high = judgement.effect
    return result, f"{likely:+.1%} ({low:+.1%} to {high:+.1%})"


def money_text(money: Money | None) -> str:
    """Return dollars with their interval: `$1,200 ($900–$1,500)`."""
    if money is None:
        return UNKNOWN
    low, likely, high = map(format_usd, money)
    return likely if low == high else f"{likely} ({low}–{high})"


def _marked_title(row: Recommendation) -> str:
    mark = "" if row.unconfirmed is None else "not confirmed: "
    return f"{mark}{MAY_RISE if row.may_rise else ''}{row.title}"


def _if_confirmed(row: Recommendation) -> str:
    saving = None if row.chosen is None else row.chosen.if_confirmed
    return "" if saving is None else money_text(saving.net)


def _worth(row: Recommendation) -> tuple[str, str]:
    chosen = row.chosen
    return (UNKNOWN, UNKNOWN) if chosen is None else (money_text(chosen.net), money_text(chosen.capacity))


def _risks(row: Recommendation) -> tuple[str, str, str, str]:
    best = row.chosen
    if best is None:
        return ("",) * 4
    return how_sure(best), "; ".join(slower(best)), "; ".join(could_break(best)), affected(row, best)


def _usd(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else format_usd(figure.value * 1e9)


def _number(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else f"{figure.value:,.3g}" if figure.value < 100 else f"{figure.value:,.0f}"


class NamedFigure(NamedTuple):
    """One figure with its name."""

    value: str
    name: str


def headlines(report: ReportFigures) -> tuple[NamedFigure, ...]:
    """Return the figures at the head of a report, most important first."""
    bill, savings = report.bill, report.savings
    proven = savings.proven.nano_usd
    return (
        NamedFigure(
            UNKNOWN if bill is None else format_usd(bill.paid), "paid" if bill else "paid: no device has a price"
        ),
        NamedFigure(format_usd(price(report)), f"per {headline().unit}"),
        NamedFigure(format_count(report.tokens), "tokens"),
        NamedFigure(idle_text(bill), "of dollars idle"),
        NamedFigure(money_text(savings.bankable), "bankable a month, found"),
        NamedFigure(money_text(savings.taken_bankable), "bankable a month, taken"),
        NamedFigure(UNKNOWN if proven is None else money_text(proven), _proven_by(savings.proven.changes)),
        NamedFigure(str(len(report.regressions)), "regressions"),
    )


def idle_text(bill: BillTotal | None) -> str:
    """Return the idle share of the bill: idle while allocated, and unallocated."""
    if bill is None or not bill.paid:
        return UNKNOWN
    return f"{'≥ ' if bill.busy_is_bound else ''}{(bill.idle + bill.unallocated) / bill.paid:.0%}"


def _proven_by(changes: int) -> str:
    return f"a month left the bill, by {changes} change{'' if changes == 1 else 's'}"


def bill_values(bill: Spend) -> Iterator[dict[str, object]]:
    """Yield the values of each line of a bill; None is unknown or not applicable."""
    for line in bill.lines:
        price = line.nano_usd_per_mtok
        yield {
            "by": bill.by,
            "name": line.name,
            "team": line.team,
            "key": line.key,
            "user": line.user,
            "usd": None if bill.nano_usd is None else line.nano_usd / NANO_USD,
            "tokens": line.tokens,
            "usd_per_mtok": None if price is None or bill.nano_usd is None else price / NANO_USD,
            "cached_tokens": line.cached_tokens,
            "generated_tokens": line.generated_tokens,
            "reasoning_tokens": line.reasoning_tokens,
            "audio_tokens": line.audio_tokens,
            "images": line.images,
            "video_s": None if line.video_ms is None else line.video_ms / 1000,
            "weighted": not line.unweighted if line.team or line.key or line.user else None,
            "usd_with_shared": None if line.shared_nano_usd is None else line.shared_nano_usd / NANO_USD,
        }


def advice_values(recommendation: Recommendation) -> dict[str, object]:
    """Return the change of a recommendation, its reason, its saving with certainty, and its risks."""
    chosen = recommendation.chosen
    confirmed = None if chosen is None else chosen.if_confirmed
    return {
        "id": full_id(recommendation),
        "rule": recommendation.rule_id,
        "state": recommendation.state.value,
        "title": recommendation.change,
        "target": recommendation.target,
        "why": why(recommendation),
        "bankable_usd_per_month": None if chosen is None else _usd_value(chosen.net),
        "capacity_usd_per_month": None if chosen is None else _usd_value(chosen.capacity),
        "if_confirmed_usd_per_month": _usd_value(confirmed.net) if confirmed else None,
        "to_confirm": None if chosen is None else chosen.to_confirm,
        "forecast": asdict(chosen.tier) if chosen and chosen.tier else None,
        "confidence": None if chosen is None else how_sure(chosen),
        "slower": [] if chosen is None else list(slower(chosen)),
        "could_break": [] if chosen is None else list(could_break(chosen)),
        "moving": [] if chosen is None else list(chosen.moving),
        "moving_once_usd": _usd_value(chosen.moving_once) if chosen and chosen.moving_once else None,
        "affected": None if chosen is None else affected(recommendation, chosen),
        "evidence": [series_label(line.series) for line in recommendation.evidence if line.missing is None],
        "commands": [] if chosen is None else list(chosen.commands),
        "pays_more": recommendation.pays_more,
        "may_rise": recommendation.may_rise,
        "unconfirmed": recommendation.unconfirmed if recommendation.state is State.OPEN else None,
        "reason": recommendation.reason,
        "remedy": recommendation.remedy,
        "refusals": [{"code": refusal.code, "reason": refusal.reason} for refusal in recommendation.refusals],
    }


def trouble_values(trouble: Trouble) -> dict[str, object]:
    """Return the present troubles as JSON values."""
    nano_usd = trouble.nano_usd_per_hour
    return {
        "kind": trouble.kind.value,
        "target": trouble.target,
        "reason": trouble.reason,
        "usd_per_hour": None if nano_usd is None else nano_usd / NANO_USD,
        "command": trouble.command,
    }


def verdict_values(verdict: Verdict) -> dict[str, object]:
    """Return a verdict with its effect on the cost of a token, as a ratio."""
    effect = verdict.judgement.effect
    return {
        "deployment": verdict.name,
        "changed_ts": verdict.changed_ts,
        "judged_ts": verdict.judged_ts,
        "changes": [{"field": edit.field, "before": edit.before, "after": edit.after} for edit in verdict.edits],
        "result": verdict.judgement.result.value,
        "effect": None if effect is None else dict(zip(("low", "likely", "high"), effect, strict=True)),
        "reason": verdict.judgement.reason,
    }


def _usd_value(money: Money | None) -> dict[str, float] | None:
    if money is None:
        return None
    return dict(zip(("low", "likely", "high"), (nano / NANO_USD for nano in money), strict=True))
