"""Content of an alert's event: as JSON, as a sentence, and among the events of a report."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pertoken.costs.report.lines import EventLine, FleetReport
from pertoken.metrics import FIGURES
from pertoken.printable import literal
from pertoken.reports.alerts.state import Event
from pertoken.settings.alerts import LOG, MAIL, AlertSettings
from pertoken.units import format_utc

VERSION = 1
KIND = "alert"
"""Kind of an event of an alert in a report."""

GONE = "no longer there"
"""Why an alert of a target resolves that its window does not have any more."""
REMOVED, DISABLED = "no longer watched (removed from the settings)", "no longer watched (enabled = false)"
"""Why an alert resolves that the settings do not have any more, or switch off."""


def body_of(
    alert: AlertSettings, target: str, event: Event, value: float | None, now_ts: int, reason: str | None = None
) -> str:
    """Return the JSON of an event. `reason`: why, where it is not that the value crossed the limit."""
    return json.dumps(
        {
            "version": VERSION,
            "alert": alert.name,
            "event": event.value,
            "severity": alert.severity,
            "target": target,
            "figure": alert.when.figure,
            "value": value,
            "unit": FIGURES[alert.when.figure].unit,
            "operator": alert.when.operator,
            "limit": alert.when.limit,
            "window_s": alert.window_s,
            "at": now_ts,
            "reason": reason,
        },
        sort_keys=True,
    )


def sentence(body: str) -> str:
    """Return the JSON of an event as one line of text."""
    event: dict[str, Any] = json.loads(body)
    reason = event.get("reason")  # stored deliveries may be older than the key
    value = reason or "not known" if event["value"] is None else f"{event['value']:g} {event['unit']}"
    limit = f"{event['operator']} {event['limit']:g}"
    return literal(
        f"alert {event['alert']} {event['event']}: {event['figure']} of {event['target']} is {value} (limit {limit}), "
        f"{format_utc(event['at'])}"
    )


def with_alerts(report: FleetReport, events: Iterable[tuple[str, int]]) -> FleetReport:
    """Return a report with events of alerts, JSON and time of each, among its own, newest first."""
    lines = [EventLine(ts, KIND, sentence(body), 1) for body, ts in events if ts <= report.now_ts]
    return replace(report, events=tuple(sorted((*report.events, *lines), key=lambda event: -event.ts)))


def destination_key(destination: str) -> str:
    """Return the stored key of a destination: a hash of a URL, which may be secret."""
    if destination in (LOG, MAIL):
        return destination
    return f"webhook:{hashlib.sha256(destination.encode()).hexdigest()[:16]}"
