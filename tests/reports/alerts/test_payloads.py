"""Payloads of chats and pagers, posted to receivers on loopback in the shapes that their public pages describe."""

import json
from typing import Any

import pytest

from pertoken.config import Settings
from pertoken.reports.alerts import GONE, AlertEventKind, body_of, sender
from pertoken.settings.alerts import AlertSettings, read_alerts
from tests.reports.receivers import receiver

NOW = 1_795_392_000
TARGET = "model=<!channel> [x](https://evil) \x1b[31m" + "m" * 2000


def posted(
    chat: str, event: AlertEventKind, path: str = "", key: str = "", **more: Any
) -> tuple[str, dict[str, str], Any]:
    """Send an event to a receiver as a chat would get it; return path, headers and JSON."""
    (alert,) = read_alerts({"stuck": {"to": ["log"]}})
    assert isinstance(alert, AlertSettings)
    with receiver() as hook:
        destination = f"{chat}:{hook.url}{path}{key}"
        body = body_of(alert, more.get("target", "model=chat"), event, 2.0, NOW, more.get("reason"))
        sender(Settings(delivery_secret_env="NOT_SET"))(destination, body, NOW, "id")
        ((sent_to, headers, data),) = hook.posts
    return sent_to, dict(headers), json.loads(data)


def test_slack_gets_a_text_and_a_block_in_which_no_name_calls_a_channel() -> None:
    path, headers, body = posted("slack", AlertEventKind.FIRED, "/services/T/B/x", target=TARGET)
    assert path == "/services/T/B/x" and headers["Content-Type"] == "application/json"
    assert set(body) == {"text", "blocks"} and "alert stuck fired: stuck of model=" in body["text"]
    (block,) = body["blocks"]
    assert block["type"] == "section" and block["text"]["type"] == "mrkdwn" and len(block["text"]["text"]) <= 3000
    assert "<" not in body["text"] + block["text"]["text"] and "\x1b" not in body["text"]


def test_teams_gets_an_adaptive_card_in_which_no_name_is_a_link() -> None:
    _, _, body = posted("teams", AlertEventKind.RESOLVED, "/workflows/x", target=TARGET, reason=GONE)
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert card["type"] == "AdaptiveCard" and card["version"] == "1.4"
    title, text, facts = card["body"]
    assert title["text"] == "stuck resolved" and title["color"] == "Good"
    assert "[x](" not in text["text"] and "\\[x\\]\\(" in text["text"]
    assert {"title": "Reason", "value": GONE} in facts["facts"]
    assert not any("[x](" in fact["value"] for fact in facts["facts"])


def test_a_pagerduty_incident_is_triggered_and_resolved_by_one_key() -> None:
    path, _, fired = posted("pagerduty", AlertEventKind.FIRED, "/v2/enqueue", "#r0uting", target=TARGET)
    assert path == "/v2/enqueue" and fired["routing_key"] == "r0uting" and fired["event_action"] == "trigger"
    assert fired["payload"]["severity"] == "critical" and len(fired["payload"]["summary"]) == 1024
    assert fired["payload"]["timestamp"] == "2026-11-23T00:00:00+00:00" and fired["payload"]["source"]
    _, _, resolved = posted("pagerduty", AlertEventKind.RESOLVED, "/v2/enqueue", "#r0uting", target=TARGET)
    assert resolved["event_action"] == "resolve" and "payload" not in resolved
    assert resolved["dedup_key"] == fired["dedup_key"] and len(fired["dedup_key"]) <= 255
    _, _, test = posted("pagerduty", AlertEventKind.TEST, "/v2/enqueue", "#r0uting", target=TARGET)
    assert test["dedup_key"] != fired["dedup_key"] and test["payload"]["severity"] == "info"


def test_an_opsgenie_alert_is_opened_and_closed_by_one_alias() -> None:
    path, headers, fired = posted("opsgenie", AlertEventKind.FIRED, key="#k3y")
    assert path == "/v2/alerts" and headers["Authorization"] == "GenieKey k3y"
    assert fired["priority"] == "P1" and len(fired["message"]) <= 130
    assert all(isinstance(value, str) for value in fired["details"].values())
    path, headers, closed = posted("opsgenie", AlertEventKind.RESOLVED, key="#k3y")
    assert path == "/v2/alerts/pertoken%2Fstuck%2Fmodel%3Dchat/close?identifierType=alias"
    assert fired["alias"] == "pertoken/stuck/model=chat" and set(closed) == {"source", "note"}


@pytest.mark.parametrize("chat", ["slack", "teams", "pagerduty", "opsgenie"])
@pytest.mark.parametrize("event", list(AlertEventKind))
def test_no_payload_holds_a_control_character_or_the_signature_of_a_webhook(chat: str, event: AlertEventKind) -> None:
    _, headers, body = posted(chat, event, key="#key", target=TARGET)
    assert "\\u001b" not in json.dumps(body) and "Pertoken-Signature" not in headers


def test_two_long_targets_with_one_beginning_are_two_incidents() -> None:
    keys = {posted("pagerduty", AlertEventKind.FIRED, key="#k", target=TARGET + end)[2]["dedup_key"] for end in "ab"}
    assert len(keys) == 2
