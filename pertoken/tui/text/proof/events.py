"""Changes of configuration and their verdicts as events of the screens."""

from collections.abc import Iterable
from dataclasses import replace

from pertoken.costs.report.lines import EventLine, FleetReport
from pertoken.proof.verdicts import Result, Verdict
from pertoken.tui.text.lifecycle import verdict_text

REGRESSION, VERDICT = "regression", "verdict"
"""Kinds of these events: a change that made tokens dearer, and any other one."""


def with_verdicts(report: FleetReport, verdicts: Iterable[Verdict]) -> FleetReport:
    """Return a report whose events include the changes of its window, and what was judged within it; newest first."""
    first = report.now_ts - report.window_s
    found = [each for each in map(_event, verdicts) if first <= each.ts <= report.now_ts]
    return replace(report, events=tuple(sorted((*report.events, *found), key=lambda each: -each.ts)))


def _event(verdict: Verdict) -> EventLine:
    kind = REGRESSION if verdict.judgement.result is Result.DEARER else VERDICT
    return EventLine(verdict.judged_ts or verdict.changed_ts, kind, verdict_text(verdict), 1)
