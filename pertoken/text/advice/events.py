"""Verdicts on changes of configuration as events of a report."""

from collections.abc import Iterable
from dataclasses import replace

from pertoken.costs.report.lines import EventLine, FleetReport
from pertoken.proof.verdicts import Result, Verdict
from pertoken.text.advice.lifecycle import verdict_event

REGRESSION, VERDICT = "regression", "verdict"
"""Kinds of these events: a change that made tokens more expensive or altered outputs, and any other change."""


def with_verdicts(report: FleetReport, verdicts: Iterable[Verdict]) -> FleetReport:
    """Return a report with the verdicts of its window among its events, newest first."""
    first = report.now_ts - report.window_s
    changes = [event for event in map(_event, verdicts) if first <= event.ts <= report.now_ts]
    return replace(report, events=tuple(sorted((*report.events, *changes), key=lambda event: -event.ts)))


def _event(verdict: Verdict) -> EventLine:
    kind = REGRESSION if verdict.judgement.result in (Result.DEARER, Result.OUTPUT_CHANGED) else VERDICT
    return EventLine(verdict.dated_ts, kind, verdict_event(verdict), 1)
