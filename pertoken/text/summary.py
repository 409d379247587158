"""The facts of the screens as plain text, without a terminal."""

from collections.abc import Sequence

from pertoken.costs.hosts import HostCost
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.report.lines import FleetReport
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.verdicts import Verdict
from pertoken.text.advice.columns import (
    DECIDED_COLUMNS,
    DONE_COLUMNS,
    OPEN_COLUMNS,
    PAY_MORE,
    PAY_MORE_COLUMNS,
    alternative,
    decided,
    declined,
    done,
    not_evaluated,
    open_advice,
    paying_more,
)
from pertoken.text.advice.lifecycle import record_line, verdict_line
from pertoken.text.advice.notes import advice_note, totals
from pertoken.text.advice.sheet import advice_sheet
from pertoken.text.amounts import amount
from pertoken.text.columns import Column, table
from pertoken.text.costs.bill import bill_sentence
from pertoken.text.costs.hours import hour_columns, notes
from pertoken.text.fleet.columns import deployment_columns, device_columns, host_columns
from pertoken.text.fleet.notes import event_lines, fleet_notes
from pertoken.text.fleet.troubles import trouble_table
from pertoken.text.headline import figures
from pertoken.text.sheet import text_of
from pertoken.text.words import literal, literal_lines
from pertoken.units import format_count, format_duration

WIDTH = 118
MAX_CHANGES = 10
"""Newest changes of configuration that a summary lists; JSON has all."""
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
    verdicts: Sequence[Verdict] = (),
) -> str:
    """Return the costs of a window and the advice.

    Tables are at most `width` cells wide; None (for files and pipes): nothing is cut. Hints and reasons are never cut.
    `verdicts` are newest first. `no_advice` is the sentence shown if there are no proposals; None: the usual one.
    """
    proposed, silent = open_advice(recommendations), not_evaluated(recommendations)
    dearer = paying_more(recommendations)
    changes = [f"  {verdict_line(verdict)}" for verdict in verdicts[:MAX_CHANGES]]
    blocks = (
        [f"pertoken, last {format_duration(report.window_s)}, from {literal(report.source)}"],
        trouble_table(report, width),
        [*(f"{figure.value:>10}  {figure.caption}" for figure in figures(report)), bill_sentence(report)],
        [f"→ {literal(hint)}" for hint in report.hints],
        table("Deployments", report.deployments, deployment_columns(report), width),
        [f"  {note}" for note in fleet_notes(report)],
        table("Devices", report.devices, device_columns(report), width),
        table("Hosts", report.hosts, host_columns(report), width),
        table("Savings", proposed, (ID_COLUMN, *OPEN_COLUMNS), width),
        [totals(proposed)] if proposed else [no_advice or advice_note(recommendations)],
        _beside(proposed),
        table("Decided", decided(recommendations), (ID_COLUMN, *DECIDED_COLUMNS), width),
        [line for line in (declined(recommendations),) if line is not None],
        table("Done", done(recommendations), (ID_COLUMN, *DONE_COLUMNS), width),
        table(PAY_MORE, dearer, (ID_COLUMN, *PAY_MORE_COLUMNS), width),
        ["Not evaluated", *(_silence(row) for row in silent)] if silent else [],
        ["Changes of configuration", *changes] if changes else [],
        [_NEXT] if recommendations else [],
        list(event_lines(report)[:3]),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def sheet_text(row: Recommendation, now_ts: float) -> str:
    """Return the details of one recommendation as text."""
    return text_of(advice_sheet(row, now_ts))


HOST_COLUMNS: tuple[Column[HostCost], ...] = (
    Column("host", lambda line: literal(line.name), 0, min_cells=14),
    Column("$/Mtok", lambda line: amount(line.nano_usd_per_mtok), 2, lambda line: line.nano_usd_per_mtok),
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
    return "\n".join((*table(title, hosts, HOST_COLUMNS, width), note)) + "\n"


def hours_summary(models: Sequence[ModelHours], width: int | None = WIDTH, by: str = "model") -> str:
    """Return the price of a million tokens by model or service and hour; `width` as in `summary`."""
    if not models:
        return "No model was served in this time.\n"
    return "\n".join((*table("$ per Mtok", models, hour_columns(by), width), *notes(models))) + "\n"


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
