"""Requests of an alert's event as Slack, Teams, PagerDuty and Opsgenie read them.

Sources: incoming webhooks of Slack, Adaptive Cards in Workflows of Teams, Events API v2 of PagerDuty, and Alert API v2
of Opsgenie.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urldefrag

from pertoken.printable import literal
from pertoken.reports.alerts.state import Event

_MAX_SUMMARY, _MAX_MESSAGE, _MAX_KEY, _MAX_TEXT = 1024, 130, 255, 2900
"""Longest summary and key of PagerDuty, message of Opsgenie, and text of a block of Slack, characters."""
_CARD = "application/vnd.microsoft.card.adaptive"
_CARD_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"


@dataclass(frozen=True, slots=True)
class Request:
    """One POST."""

    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """Its body as JSON."""
        return json.dumps(self.body, sort_keys=True).encode()


def request_of(chat: str, url: str, event: Mapping[str, Any], text: str) -> Request:
    """Return the request that shows an event in a chat of `CHATS`; `text` is its sentence."""
    return _REQUESTS[chat](url, event, text)


def _slack(url: str, event: Mapping[str, Any], text: str) -> Request:
    # A name such as `<!channel>` would call everyone.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:_MAX_TEXT]
    mark = {Event.FIRED: ":red_circle:", Event.RESOLVED: ":large_green_circle:"}.get(event["event"], ":white_circle:")
    block = {"type": "section", "text": {"type": "mrkdwn", "text": f"{mark} {escaped}", "verbatim": True}}
    return Request(url, {"text": escaped, "blocks": [block]})


def _teams(url: str, event: Mapping[str, Any], text: str) -> Request:
    colour = {Event.FIRED: "Attention", Event.RESOLVED: "Good"}.get(event["event"], "Default")
    title = f"{event['alert']} {event['event']}"
    facts = [{"title": title, "value": _unformatted(str(value))} for title, value in _facts(event).items()]
    card = {
        "$schema": _CARD_SCHEMA,
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {"type": "TextBlock", "text": _unformatted(title), "weight": "Bolder", "color": colour, "wrap": True},
            {"type": "TextBlock", "text": _unformatted(text), "wrap": True},
            {"type": "FactSet", "facts": facts},
        ],
    }
    attachment = {"contentType": _CARD, "contentUrl": None, "content": card}
    return Request(url, {"type": "message", "attachments": [attachment]})


def _pagerduty(url: str, event: Mapping[str, Any], text: str) -> Request:
    address, key = urldefrag(url)
    body: dict[str, Any] = {
        "routing_key": key,
        "event_action": "resolve" if event["event"] == Event.RESOLVED else "trigger",
        "dedup_key": _alias(event),
    }
    if body["event_action"] == "trigger":
        body["payload"] = {
            "summary": text[:_MAX_SUMMARY],
            "source": literal(event["target"]),
            "severity": "info" if event["event"] == Event.TEST else event.get("severity", "warning"),
            "timestamp": datetime.fromtimestamp(event["at"], UTC).isoformat(),
            "custom_details": _facts(event),
        }
        body["client"] = "pertoken"
    return Request(address, body)


def _opsgenie(url: str, event: Mapping[str, Any], text: str) -> Request:
    base, key = urldefrag(url)
    address, headers = f"{base.rstrip('/')}/v2/alerts", {"Authorization": f"GenieKey {key}"}
    alias = _alias(event)
    if event["event"] == Event.RESOLVED:
        closing = f"{address}/{quote(alias, safe='')}/close?identifierType=alias"
        return Request(closing, {"source": "pertoken", "note": text}, headers)
    priority = "P5" if event["event"] == Event.TEST else "P1" if event.get("severity") == "critical" else "P3"
    body = {
        "message": text[:_MAX_MESSAGE],
        "alias": alias,
        "description": text,
        "source": "pertoken",
        "priority": priority,
        "tags": ["pertoken", event["alert"]],
        "details": {name: str(value) for name, value in _facts(event).items()},
    }
    return Request(address, body, headers)


_REQUESTS: Mapping[str, Callable[[str, Mapping[str, Any], str], Request]] = {
    "slack": _slack,
    "teams": _teams,
    "pagerduty": _pagerduty,
    "opsgenie": _opsgenie,
}


def _alias(event: Mapping[str, Any]) -> str:
    """Return the key that joins the events of one alert of one target, so that resolving closes what firing opened."""
    test = "/test" if event["event"] == Event.TEST else ""
    key = f"pertoken/{event['alert']}/{literal(event['target'])}{test}"
    return key if len(key) <= _MAX_KEY else f"pertoken/{event['alert']}/{sha256(key.encode()).hexdigest()}"


def _facts(event: Mapping[str, Any]) -> Mapping[str, Any]:
    value = "not known" if event["value"] is None else f"{event['value']:g} {event['unit']}"
    facts = {
        "Target": literal(event["target"]),
        "Figure": event["figure"],
        "Value": value,
        "Limit": f"{event['operator']} {event['limit']:g}",
    }
    return facts if event.get("reason") is None else {**facts, "Reason": event["reason"]}


def _unformatted(text: str) -> str:
    """Return text of which an Adaptive Card formats nothing as Markdown, so that no name becomes a link."""
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#+!|<>~" else character for character in text)
