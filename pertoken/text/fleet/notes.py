"""Sentences about the fleet around its tables: meaning of marks, events, metrics that are not measured."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pertoken.costs.report.lines import FleetReport, MissingMetric
from pertoken.metrics import label_of
from pertoken.text.amounts import caption
from pertoken.text.fleet.troubles import NOW, trouble_sentences
from pertoken.text.sheet import Fact, Section, Sheet, sheet
from pertoken.text.words import ago, literal


def fleet_notes(report: FleetReport) -> tuple[str, ...]:
    """Return notes on the marks in the table of deployments and on estimated dollars; empty without them."""
    star = caption("* Some tokens were missed (an engine restarted): $/Mtok is an upper bound.")
    about = "Dollars are an estimate: the minutes of an hour were deleted."
    return (*((star,) if report.incomplete else ()), *((about,) if report.estimated else ()))


def event_lines(report: FleetReport) -> tuple[str, ...]:
    """Return the events, newest first, equal messages as one line: `3m ago  the engine restarted (4 times)`."""
    newest: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for event in report.events:
        newest[event.message] = max(event.ts, newest.get(event.message, event.ts))
        counts[event.message] += event.count
    return tuple(
        f"{ago(report.now_ts - ts)}  {literal(message)}{f' ({counts[message]} times)' if counts[message] > 1 else ''}"
        for message, ts in sorted(newest.items(), key=lambda message_ts: -message_ts[1])
    )


def notices_sheet(report: FleetReport) -> Sheet:
    """Return a sheet of all hints, events, and metrics that are not measured."""
    return sheet(
        Section(NOW, trouble_sentences(report.troubles)),
        Section("What to start, set or switch on", tuple(f"→ {literal(hint)}" for hint in report.hints)),
        Section("What happened, newest first", event_lines(report)),
        Section("What is not measured", _gaps(report.missing)),
    )


def _gaps(missing: Iterable[MissingMetric]) -> tuple[Fact, ...]:
    """Return the metrics that are not measured, one line for each metric and reason."""
    owners: dict[tuple[str, str], list[str]] = {}
    for gap in missing:
        owners.setdefault((gap.metric, gap_reason(gap)), []).append(gap.owner)
    return tuple((literal(f"{_together(names)}: {label_of(metric)}"), why) for (metric, why), names in owners.items())


def _together(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def gap_reason(gap: MissingMetric) -> str:
    """Return the reason why a metric is not measured, with its remedy."""
    reason = literal(gap.reason) or literal(gap.status)
    return f"{reason.rstrip('.')}. {literal(gap.remedy)}" if gap.remedy else reason
