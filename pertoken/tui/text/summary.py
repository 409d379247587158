"""The facts of the screens as plain text, for where there is no terminal."""

from collections.abc import Sequence

from pertoken.advisor.recommendation import Recommendation
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.advice_columns import OPEN_COLUMNS, alternative, not_evaluated, open_advice
from pertoken.tui.text.bill import bill_sentence
from pertoken.tui.text.columns import GAP, Column, L, cut, fit
from pertoken.tui.text.fleet_columns import deployment_columns, device_columns, host_columns
from pertoken.tui.text.headline import figures
from pertoken.tui.text.hours import hour_columns, notes
from pertoken.tui.text.notes import advice_note, event_line, fleet_notes, totals
from pertoken.tui.text.words import literal, literal_lines
from pertoken.units import format_duration

WIDTH = 118


def summary(report: FleetReport, recommendations: Sequence[Recommendation]) -> str:
    """What a window cost and what could be cheaper, as text of at most 118 cells a line, hints and reasons apart."""
    proposed, silent = open_advice(recommendations), not_evaluated(recommendations)
    blocks = (
        [f"pertoken, last {format_duration(report.window_s)}, from {literal(report.source)}"],
        [*(f"{each.value:>10}  {each.caption}" for each in figures(report)), bill_sentence(report)],
        [f"→ {literal(hint)}" for hint in report.hints],
        _table("Deployments", report.deployments, deployment_columns(report)),
        [f"  {note}" for note in fleet_notes(report)],
        _table("Devices", report.devices, device_columns(report)),
        _table("Hosts", report.hosts, host_columns(report)),
        _table("Savings", proposed, OPEN_COLUMNS),
        [totals(proposed)] if proposed else [advice_note(recommendations)],
        _beside(proposed),
        ["Not evaluated", *(_silence(each) for each in silent)] if silent else [],
        [event_line(report, event) for event in report.events[:3]],
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def hours_summary(models: Sequence[ModelHours]) -> str:
    """What a million tokens cost by model and hour, as text of at most 118 cells a line."""
    if not models:
        return "No model was served in this time.\n"
    return "\n".join((*_table("$ per Mtok", models, hour_columns()), *notes(models))) + "\n"


def _silence(each: Recommendation) -> str:
    why = " ".join(filter(None, (each.reason, each.remedy)))
    return f"  {literal(each.rule_id)}, {literal(each.target)}: {each.state.lower()}: " + " ".join(literal_lines(why))


def _beside(proposed: Sequence[Recommendation]) -> list[str]:
    """Variants and refusals beside the best variant of each proposal."""
    lines = []
    for each in proposed:
        what = f"  {literal(each.rule_id)}, {literal(each.target)}"
        lines += [f"{what}: or {alternative(variant)}" for variant in each.variants[1:]]
        lines += [f"{what}: not {' '.join(literal_lines(refusal.reason))}" for refusal in each.refusals]
    return ["Beside these", *lines] if lines else []


def _table(title: str, lines: Sequence[L], columns: Sequence[Column[L]]) -> list[str]:
    if not lines:
        return []
    cells = [[column.text(line) for column in columns] for line in lines]
    widths = fit(cells, columns, WIDTH - 2)

    def row(texts: Sequence[str]) -> str:
        parts = [cut(texts[i], width, columns[i]) for i, width in widths.items()]
        return "  " + (" " * GAP).join(parts).rstrip()

    return [title, row([column.name for column in columns]), *(row(texts) for texts in cells)]
