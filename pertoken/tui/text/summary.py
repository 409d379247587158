"""The facts of the screens as plain text, for where there is no terminal."""

import sys
from collections.abc import Sequence

from pertoken.advisor.recommendation import Recommendation, short_id
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.advice_columns import OPEN_COLUMNS, alternative, not_evaluated, open_advice
from pertoken.tui.text.advice_sheet import advice_sheet
from pertoken.tui.text.bill import bill_sentence
from pertoken.tui.text.columns import GAP, Column, L, cut, fit
from pertoken.tui.text.fleet_columns import deployment_columns, device_columns, host_columns
from pertoken.tui.text.headline import figures
from pertoken.tui.text.hours import hour_columns, notes
from pertoken.tui.text.notes import advice_note, event_lines, fleet_notes, totals
from pertoken.tui.text.sheet import label_width
from pertoken.tui.text.words import literal, literal_lines
from pertoken.units import format_duration

WIDTH = 118
ID_COLUMN: Column[Recommendation] = Column("id", lambda each: short_id(each), 0)


def summary(
    report: FleetReport,
    recommendations: Sequence[Recommendation],
    width: int | None = WIDTH,
    no_advice: str | None = None,
) -> str:
    """Return what a window cost and what could be cheaper.

    Tables take `width` cells; None is for files and pipes, where nothing is cut. Hints and reasons are never cut.
    `no_advice` is the sentence in place of proposals where there are none; None: the usual one.
    """
    proposed, silent = open_advice(recommendations), not_evaluated(recommendations)
    blocks = (
        [f"pertoken, last {format_duration(report.window_s)}, from {literal(report.source)}"],
        [*(f"{each.value:>10}  {each.caption}" for each in figures(report)), bill_sentence(report)],
        [f"→ {literal(hint)}" for hint in report.hints],
        _table("Deployments", report.deployments, deployment_columns(report), width),
        [f"  {note}" for note in fleet_notes(report)],
        _table("Devices", report.devices, device_columns(report), width),
        _table("Hosts", report.hosts, host_columns(report), width),
        _table("Savings", proposed, (ID_COLUMN, *OPEN_COLUMNS), width),
        [totals(proposed)] if proposed else [no_advice or advice_note(recommendations)],
        _beside(proposed),
        ["Not evaluated", *(_silence(each) for each in silent)] if silent else [],
        ["All of one: `pertoken advise show ID`, by the first digits of its id."] if recommendations else [],
        list(event_lines(report)[:3]),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def sheet_text(each: Recommendation, now_ts: float) -> str:
    """Return all that is known of one piece of advice, as text."""
    lines = []
    for section in advice_sheet(each, now_ts):
        label = label_width(section) + GAP
        rows = (line if isinstance(line, str) else f"{line[0]:<{label}}{line[1]}" for line in section.lines)
        lines += [section.title, *(f"  {row}" for row in rows), ""]
    return "\n".join(lines)


def hours_summary(models: Sequence[ModelHours], width: int | None = WIDTH) -> str:
    """Return what a million tokens cost by model and hour; `width` as in `summary`."""
    if not models:
        return "No model was served in this time.\n"
    return "\n".join((*_table("$ per Mtok", models, hour_columns(), width), *notes(models))) + "\n"


def _silence(each: Recommendation) -> str:
    why = " ".join(filter(None, (each.reason, each.remedy)))
    what = f"{short_id(each)}  {literal(each.rule_id)}, {literal(each.target)}"
    return f"  {what}: {each.state.lower()}: {' '.join(literal_lines(why))}"


def _beside(proposed: Sequence[Recommendation]) -> list[str]:
    """Return variants and refusals beside the best variant of each proposal; equal reasons as one line."""
    lines = []
    for each in proposed:
        what = f"  {literal(each.rule_id)}, {literal(each.target)}"
        lines += [f"{what}: or {alternative(variant)}" for variant in each.variants[1:]]
        lines += [f"{what}: not {reason}" for reason in (" ".join(literal_lines(r.reason)) for r in each.refusals)]
    return ["Beside these", *lines] if lines else []


def _table(title: str, lines: Sequence[L], columns: Sequence[Column[L]], width: int | None) -> list[str]:
    if not lines:
        return []
    cells = [[column.text(line) for column in columns] for line in lines]
    widths = fit(cells, columns, sys.maxsize if width is None else width - 2)

    shown = [
        cut([columns[i].name], width, columns[i]) + cut([row[i] for row in cells], width, columns[i])
        for i, width in widths.items()
    ]
    return [title, *("  " + (" " * GAP).join(row).rstrip() for row in zip(*shown, strict=True))]
