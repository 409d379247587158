"""Sentences around the tables: meaning of marks, reasons for empty lists, totals."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pertoken.costs.report.lines import FleetReport, MissingMetric
from pertoken.metrics import label_of
from pertoken.proof.recommendation import Recommendation
from pertoken.tui.amounts import caption
from pertoken.tui.text.advice_columns import bankable, best_of_each_target, capacity, not_evaluated, total
from pertoken.tui.text.sheet import Fact, Section, Sheet, sheet
from pertoken.tui.text.words import NONE_FOUND, ago, literal, usd_range


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


def totals(proposed: Sequence[Recommendation]) -> str:
    """Return bankable and capacity dollars of the open proposals, which are never added to each other."""
    best = best_of_each_target(proposed)
    assumed = Counter(line for row in best if row.best for line in row.best.assumptions)
    frequent = max(assumed, key=lambda line: assumed[line], default=None)
    more = f" (and {len(assumed) - 1} more, in the details)" if len(assumed) > 1 else ""
    return (
        f"Bankable {_monthly(total(bankable(row) for row in best))}: the bill falls by this.\n"
        f"Capacity {_monthly(total(capacity(row) for row in best))}: the same bill serves more. "
        "Not to be added.\n"
        "Of changes to the same service or host only the best counts."
        + ("" if frequent is None else f"\nAssumed: {literal(frequent.partition('; ')[0])}{more}")
    )


def _monthly(money: tuple[int, int, int] | None) -> str:
    return NONE_FOUND if money is None else f"{usd_range(money)} a month"


def advice_note(advice: Sequence[Recommendation]) -> str:
    """Return the reason why nothing is proposed."""
    silent = len(not_evaluated(advice))
    if not silent:
        return (
            "No rule has run yet. Rules need a few minutes of telemetry of a served model; "
            "`pertoken advise` runs them now."
        )
    results = "1 rule result with its reason" if silent == 1 else f"{silent} rule results with their reasons"
    return f"Nothing to propose: Not evaluated lists {results}."
