"""Sending one event to one destination."""

import json
import logging
from collections.abc import Callable

from pertoken.config import Settings
from pertoken.errors import PertokenError
from pertoken.reports.alerts.message import body_of, sentence
from pertoken.reports.alerts.payloads import request_of
from pertoken.reports.alerts.state import Event
from pertoken.reports.delivery import mail, webhook
from pertoken.reports.delivery.secret import read_secret
from pertoken.settings.alerts import LOG, MAIL, AlertSettings, chat_of, masked

log = logging.getLogger("pertoken.alerts")
Send = Callable[[str, str, int, str], None]
"""(destination, JSON, time, id of the delivery); raises PertokenError."""


def sender(settings: Settings) -> Send:
    """Return the function that sends an event to a destination, by the settings."""

    def send(destination: str, body: str, now_ts: int, delivery_id: str) -> None:
        if destination == LOG:
            log.warning("%s", sentence(body))
        elif destination == MAIL:
            text = sentence(body)
            mail.send(settings, text.partition(" (limit")[0], f"{text}\n")
        else:
            own = settings.delivery_own_hosts
            chat, url = chat_of(destination)
            if chat is None:
                file, variable = settings.delivery_secret_file, settings.delivery_secret_env
                secret = read_secret(file, variable, "delivery.secret_file")
                webhook.post(url, body.encode(), now_ts, secret=secret, delivery_id=delivery_id, own_hosts=own)
            else:
                request = request_of(chat, url, json.loads(body), sentence(body))
                webhook.post(request.url, request.data, now_ts, own_hosts=own, headers=request.headers)

    return send


def send_test(alert: AlertSettings, send: Send, now_ts: int) -> dict[str, str | None]:
    """Send a test event to each destination of an alert; return why it failed, or None, by masked destination."""
    target = str(alert.scope)
    body = body_of(alert, target, Event.TEST, None, now_ts)
    outcomes: dict[str, str | None] = {}
    for destination in alert.to:
        try:
            send(destination, body, now_ts, f"test-{alert.name}-{now_ts}")
            outcomes[masked(destination)] = None
        except PertokenError as error:
            outcomes[masked(destination)] = str(error)
    return outcomes
