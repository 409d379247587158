"""Sentences beside the tables: what a mark means, why a list is empty, what the totals are."""

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
    """What the marks in the table of deployments mean, and which dollars are estimates; none without either."""
    star = caption("* Some tokens went unseen (an engine restarted): $/Mtok is an upper bound.")
    about = "An hour whose minutes were deleted is divided by time: dollars are an estimate."
    return (*((star,) if report.incomplete else ()), *((about,) if report.estimated else ()))


def event_lines(report: FleetReport) -> tuple[str, ...]:
    """Return what happened, newest first, equal messages as one line: `3m ago  the engine restarted (4 times)`."""
    newest: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for event in report.events:
        newest[event.message] = max(event.ts, newest.get(event.message, event.ts))
        counts[event.message] += event.count
    return tuple(
        f"{ago(report.now_ts - ts)}  {literal(message)}{f' ({counts[message]} times)' if counts[message] > 1 else ''}"
        for message, ts in sorted(newest.items(), key=lambda each: -each[1])
    )


def notices_sheet(report: FleetReport) -> Sheet:
    """All hints, gaps and events."""
    return sheet(
        Section("What to start, set or switch on", tuple(f"→ {literal(hint)}" for hint in report.hints)),
        Section("What happened, newest first", event_lines(report)),
        Section("What is not measured", _gaps(report.missing)),
    )


def _gaps(missing: Iterable[MissingMetric]) -> tuple[Fact, ...]:
    """Return what is not measured, one line for all that lack one metric for one reason."""
    owners: dict[tuple[str, str], list[str]] = {}
    for gap in missing:
        owners.setdefault((gap.metric, gap_reason(gap)), []).append(gap.owner)
    return tuple((literal(f"{_together(names)}: {label_of(metric)}"), why) for (metric, why), names in owners.items())


def _together(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def gap_reason(gap: MissingMetric) -> str:
    """Why a metric is not measured, and what would switch it on."""
    reason = literal(gap.reason) or literal(gap.status)
    return f"{reason.rstrip('.')}. {literal(gap.remedy)}" if gap.remedy else reason


def totals(proposed: Sequence[Recommendation]) -> str:
    """Bankable and capacity dollars of what is proposed, apart: they are different things and are never added."""
    best = best_of_each_target(proposed)
    assumed = Counter(line for each in best if each.best for line in each.best.assumptions)
    most = [line for line, _ in assumed.most_common(1)]
    more = f" (and {len(assumed) - 1} more, in the details)" if len(assumed) > 1 else ""
    return (
        f"Bankable {_found(total(bankable(each) for each in best))}: the bill falls by this.\n"
        f"Capacity {_found(total(capacity(each) for each in best))}: the same bill serves more. "
        "Not to be added.\n"
        "Of changes that touch the same service or host only the best counts."
        + "".join(f"\nAssumed: {literal(line.partition('; ')[0])}{more}" for line in most)
    )


def _found(money: tuple[int, int, int] | None) -> str:
    return NONE_FOUND if money is None else f"{usd_range(money)} a month"


def advice_note(advice: Sequence[Recommendation]) -> str:
    """Why nothing is proposed."""
    silent = len(not_evaluated(advice))
    if not silent:
        return (
            "No rule has run yet. Rules need some minutes of telemetry of a served model; "
            "`pertoken advise` runs them now."
        )
    n = "1 rule result says" if silent == 1 else f"{silent} rule results say"
    return f"Nothing to propose: {n} why, under Not evaluated."
