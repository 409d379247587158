"""Sentences beside the tables: what a mark means, why a list is empty, what the totals are."""

from collections.abc import Sequence

from pertoken.advisor.recommendation import Recommendation
from pertoken.costs.lines import FleetReport
from pertoken.tui.advice_columns import best_per_target, not_evaluated
from pertoken.tui.words import usd_range


def fleet_notes(report: FleetReport) -> tuple[str, ...]:
    """What the marks in the table of deployments mean; none without a mark."""
    star = "* Some tokens went unseen (an engine restarted): $/Mtok is an upper bound."
    return (star,) if any(line.incomplete and line.nano_usd_per_mtok for line in report.deployments) else ()


def totals(proposed: Sequence[Recommendation]) -> str:
    """Bankable and capacity dollars of what is proposed, apart: they are different things and are never added."""
    bankable, capacity = (usd_range(best_per_target(proposed, kind)) for kind in ("bankable", "capacity"))
    return (
        f"Bankable {bankable} a month (the bill falls). "
        f"Capacity {capacity} a month (the same bill serves more). "
        "The best change of each target counts; the two are not added."
    )


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
