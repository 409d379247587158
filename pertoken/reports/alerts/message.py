"""What is sent of an alert, as JSON and as a sentence."""

import hashlib
import json
from typing import Any

from pertoken.metrics import FIGURES
from pertoken.printable import literal
from pertoken.reports.alerts.state import Event
from pertoken.settings.alerts import LOG, MAIL, AlertSettings
from pertoken.units import format_utc

VERSION = 1


GONE = "no longer there"
"""Why an alert of a target resolves that its window does not have any more."""


def body_of(
    alert: AlertSettings, target: str, event: Event, value: float | None, now_ts: int, reason: str | None = None
) -> str:
    """Return the JSON of an event. `reason`: why, where it is not that the value crossed the limit."""
    return json.dumps(
        {
            "version": VERSION,
            "alert": alert.name,
            "event": event.value,
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
    """Return the same for people, on one line."""
    of: dict[str, Any] = json.loads(body)
    reason = of.get("reason")  # deliveries that wait may be older than it
    value = reason or "not known" if of["value"] is None else f"{of['value']:g} {of['unit']}"
    limit = f"{of['operator']} {of['limit']:g}"
    return literal(
        f"alert {of['alert']} {of['event']}: {of['figure']} of {of['target']} is {value} (limit {limit}), "
        f"{format_utc(of['at'])}"
    )


def destination_key(destination: str) -> str:
    """Return what is stored of a destination: a hash of a URL, which may hold a secret."""
    if destination in (LOG, MAIL):
        return destination
    return f"webhook:{hashlib.sha256(destination.encode()).hexdigest()[:16]}"
