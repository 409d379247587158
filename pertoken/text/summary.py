"""The facts of the screens as plain text, without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pertoken.costs.hours import HostCost, ModelHours
from pertoken.costs.report.lines import FleetReport
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.verdicts import Verdict
from pertoken.text.advice_sheet import advice_sheet
from pertoken.text.advice_table import (
    DECIDED_COLUMNS,
    DONE_COLUMNS,
    HOUR_RATE,
    OPEN_COLUMNS,
    PAY_MORE,
    PAY_MORE_COLUMNS,
    advice_note,
    alternative,
    decided,
    declined,
    done,
    folded,
    not_evaluated,
    open_advice,
    paying_more,
    totals,
)
from pertoken.text.amounts import amount, headline, no_price_note, price
from pertoken.text.columns import Column, table
from pertoken.text.costs import bill_sentence, hour_columns, notes
from pertoken.text.fleet import deployment_columns, device_columns, figures, host_columns
from pertoken.text.fleet_sheets import event_lines, fleet_notes, trouble_table
from pertoken.text.lifecycle import record_line, verdict_line
from pertoken.text.sheet import text_of
from pertoken.text.words import literal, literal_lines
from pertoken.units import format_count, format_duration

WIDTH = 118
MAX_CHANGES = 10
"""Newest changes of configuration that a summary lists; JSON has all."""
MAX_SAVINGS, MAX_FOLDS, MAX_NEWEST, MAX_HINTS = 12, 8, 3, 3
"""Rows of the short advice: savings, rules with folded rows, rows of each other list, and hints."""
FOLDED = "Folded"
_ALL = "`pertoken advise --all` lists all."
_NEXT = (
    "Details: `pertoken advise show ID`, with the first digits of the id. "
    "To decide: `pertoken accept`, `snooze` or `dismiss ID`."
)
ID_COLUMN: Column[Recommendation] = Column("id", lambda row: short_id(row), 0)


def summary(
    report: FleetReport,
    recommendations: Sequence[Recommendation],
    width: int | None = WIDTH,
    no_advice: str | None = None,
    hour_rate: float = HOUR_RATE,
) -> str:
    """Return the present troubles, the costs of a window, and the advice.

    Tables are at most `width` cells wide; None (for files and pipes): nothing is cut. Hints and reasons are never cut.
    `no_advice` is the sentence shown if there are no proposals; None: the usual one.
    """
    advice_blocks = _advice_blocks(report, recommendations, width, no_advice, (), hour_rate)
    return _joined(
        *_head(report, width), *_fleet_blocks(report, width), *advice_blocks, event_lines(report)[:MAX_NEWEST]
    )


def fleet_summary(report: FleetReport, width: int | None = WIDTH) -> str:
    """Return the present troubles and the costs of a window; `width` as in `summary`."""
    return _joined(*_head(report, width), *_fleet_blocks(report, width), event_lines(report)[:MAX_NEWEST])


def advice_summary(
    report: FleetReport,
    recommendations: Sequence[Recommendation],
    width: int | None = WIDTH,
    verdicts: Sequence[Verdict] = (),
    *,
    everything: bool = False,
    hour_rate: float = HOUR_RATE,
    no_advice: str | None = None,
) -> str:
    """Return the present troubles and the advice: the largest savings, and the number of rows that are left out.

    `verdicts` are newest first; `no_advice` as in `summary`. `everything` leaves out nothing: rows without a figure,
    other variants, and reasons of refusals are listed, too.
    """
    if everything:
        blocks = _all_advice_blocks(report, recommendations, width, verdicts)
    else:
        blocks = _advice_blocks(report, recommendations, width, no_advice, verdicts, hour_rate)
    hints = [] if everything else _hints(report)[:MAX_HINTS]
    return _joined(*_head(report, width), hints, *blocks)


def _joined(*blocks: Sequence[str]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(report: FleetReport, width: int | None) -> tuple[list[str], list[str]]:
    head = f"pertoken, last {format_duration(report.window_s)}, from {literal(report.source)}"
    return [head], trouble_table(report, width)


def _hints(report: FleetReport) -> list[str]:
    return [f"→ {literal(hint)}" for hint in report.hints]


def _fleet_blocks(report: FleetReport, width: int | None) -> tuple[list[str], ...]:
    return (
        [*(f"{figure.value:>10}  {figure.caption}" for figure in figures(report)), bill_sentence(report)],
        _hints(report),
        table("Deployments", report.deployments, deployment_columns(report), width),
        [f"  {note}" for note in fleet_notes(report)],
        table("Devices", report.devices, device_columns(report), width),
        table("Hosts", report.hosts, host_columns(report), width),
    )


def _advice_blocks(
    report: FleetReport,
    recommendations: Sequence[Recommendation],
    width: int | None,
    no_advice: str | None,
    verdicts: Sequence[Verdict],
    hour_rate: float,
) -> tuple[list[str], ...]:
    """Return the largest rows of each list, and how many more there are."""
    proposed, silent = open_advice(recommendations), not_evaluated(recommendations)
    folds, dearer = folded(proposed, report.troubles, hour_rate), paying_more(recommendations)
    changes = [f"  {verdict_line(verdict)}" for verdict in verdicts[:MAX_NEWEST]]
    silence = f"Not evaluated: {len(silent)} results of {len({row.rule_id for row in silent})} rules. {_ALL}"
    shown, lines = folds.shown[:MAX_SAVINGS], folds.lines
    return (
        [*table("Savings", shown, (ID_COLUMN, *OPEN_COLUMNS), width), *_more(len(folds.shown) - len(shown))],
        [totals(recommendations)] if proposed else [no_advice or advice_note(recommendations)],
        [FOLDED, *lines[:MAX_FOLDS], *_more(len(lines) - MAX_FOLDS)] if lines else [],
        _limited("Decided", decided(recommendations), (ID_COLUMN, *DECIDED_COLUMNS), width),
        list(filter(None, (declined(recommendations),))),
        _limited("Done", done(recommendations), (ID_COLUMN, *DONE_COLUMNS), width),
        _limited(PAY_MORE, dearer, (ID_COLUMN, *PAY_MORE_COLUMNS), width),
        ["Changes of configuration", *changes, *_more(len(verdicts) - MAX_NEWEST)] if changes else [],
        [*([silence] if silent else []), *([_NEXT] if recommendations else [])],
    )


def _all_advice_blocks(
    report: FleetReport, recommendations: Sequence[Recommendation], width: int | None, verdicts: Sequence[Verdict]
) -> tuple[list[str], ...]:
    proposed, silent = open_advice(recommendations), not_evaluated(recommendations)
    changes = [f"  {verdict_line(verdict)}" for verdict in verdicts[:MAX_CHANGES]]
    return (
        *_fleet_blocks(report, width),
        table("Savings", proposed, (ID_COLUMN, *OPEN_COLUMNS), width),
        [totals(recommendations)] if proposed else [advice_note(recommendations)],
        _beside(proposed),
        table("Decided", decided(recommendations), (ID_COLUMN, *DECIDED_COLUMNS), width),
        list(filter(None, (declined(recommendations),))),
        table("Done", done(recommendations), (ID_COLUMN, *DONE_COLUMNS), width),
        table(PAY_MORE, paying_more(recommendations), (ID_COLUMN, *PAY_MORE_COLUMNS), width),
        ["Not evaluated", *(_silence(row) for row in silent)] if silent else [],
        ["Changes of configuration", *changes] if changes else [],
        [_NEXT] if recommendations else [],
        list(event_lines(report)[:MAX_NEWEST]),
    )


def _limited(
    title: str, rows: Sequence[Recommendation], columns: Sequence[Column[Recommendation]], width: int | None
) -> list[str]:
    return [*table(title, rows[:MAX_NEWEST], columns, width), *_more(len(rows) - MAX_NEWEST)]


def _more(count: int) -> list[str]:
    return [f"  and {count} more. {_ALL}"] if count > 0 else []


def sheet_text(row: Recommendation, now_ts: float, advice: Iterable[Recommendation] = ()) -> str:
    """Return the details of one recommendation as text; `advice` as in `advice_sheet`."""
    return text_of(advice_sheet(row, now_ts, advice=advice))


def host_cost_columns() -> tuple[Column[HostCost], ...]:
    """Return the columns of the cost of hosts."""
    return (
        Column("host", lambda line: literal(line.name), 0, min_cells=14),
        Column(headline().caption, lambda line: amount(price(line)), 2, price),
        Column("dollars", lambda line: amount(line.nano_usd), 1, lambda line: line.nano_usd),
        Column("tokens", lambda line: format_count(line.tokens), 3, lambda line: line.tokens),
        Column("GPUs", lambda line: str(line.devices), 4, lambda line: line.devices),
        Column("unpriced", lambda line: str(line.unpriced_devices or ""), 5, lambda line: line.unpriced_devices),
    )


def hosts_summary(hosts: Sequence[HostCost], hours: int, width: int | None = WIDTH) -> str:
    """Return the cost of each host and the price of a million of its tokens; `width` as in `summary`."""
    if not hosts:
        return "Nothing was recorded in this time.\n"
    title = f"Hosts, last {hours} hours of the clock (UTC)" if hours > 1 else "Hosts, this hour of the clock"
    note = "Dollars are those of all devices with a price, in use or not; tokens are those of the engines on the host."
    return "\n".join((*table(title, hosts, host_cost_columns(), width), note, *no_price_note())) + "\n"


def hours_summary(models: Sequence[ModelHours], width: int | None = WIDTH, by: str = "model") -> str:
    """Return the price of a million tokens by model or service and hour; `width` as in `summary`."""
    if not models:
        return "No model was served in this time.\n"
    return "\n".join((*table(f"$ per {headline().unit}", models, hour_columns(by), width), *notes(models))) + "\n"


def _silence(row: Recommendation) -> str:
    why = ": ".join(filter(None, (row.reason, row.remedy)))
    what = f"{short_id(row)}  {literal(row.rule_id)}, {literal(row.target)}"
    return f"  {what}: {row.state.lower()}: {' '.join(literal_lines(why))}"


def _beside(proposed: Sequence[Recommendation]) -> list[str]:
    """Return track records, other variants and refusals of the proposals, as lines."""
    lines = []
    for row in proposed:
        what = f"  {literal(row.rule_id)}, {literal(row.target)}"
        lines += [f"{what}: {record_line(best.record)}" for best in (row.best,) if best and best.record]
        lines += [f"{what}: or {alternative(variant)}" for variant in row.variants[1:]]
        lines += [f"{what}: not {reason}" for reason in (" ".join(literal_lines(r.reason)) for r in row.refusals)]
    return ["More on these", *lines] if lines else []
