"""Alerts: figures compared with limits every minute; an event is sent when an alert fires and when it resolves.

Front door: `AlertWatch` (one round of all alerts) and `send_test`. Below: states, sending, messages, chat services.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote, urldefrag

from pertoken.access import read_secret
from pertoken.config import Settings
from pertoken.costs.month import RecentMonths
from pertoken.costs.report.lines import EventLine, FleetReport
from pertoken.errors import PertokenError
from pertoken.metrics import FIGURES
from pertoken.printable import literal
from pertoken.reports import delivery
from pertoken.reports.gates import Figures, check_figure
from pertoken.settings.alerts import FLEET, LOG, MAIL, AlertSettings, FigureLimit, chat_of, masked, watched_alerts
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.advice import AlertRow
from pertoken.store.schema.shared import stable_id
from pertoken.units import format_utc

if TYPE_CHECKING:
    from sqlalchemy import Connection

JOB = "alerts"
"""Name of the job of the advisor that evaluates alerts."""
EVERY_S = 60.0
"""Time between two rounds."""
TRIES = 5
"""Tries to deliver an event to a destination."""
BACKOFF_S = 60
"""Wait after the first failed try; doubled after each further one."""
KEPT_S = 30 * 86_400
"""Retention of stored deliveries, seconds."""
Key = tuple[str, str]
"""(name of an alert, target)."""
VERSION = 1
"""Version of the JSON of an event."""
KIND = "alert"
"""Kind of alert events in a report."""
GONE = "no longer there"
"""Reason of an alert that resolves because its target is missing from the window."""
REMOVED, DISABLED = "no longer watched (removed from the settings)", "no longer watched (enabled = false)"
"""Reasons of an alert that resolves because the settings lost it or switch it off."""
log = logging.getLogger("pertoken.alerts")
Send = Callable[[str, str, int, str], None]
"""Function of (destination, JSON, epoch seconds, delivery id); raises PertokenError."""


def alerts_of(settings: Settings) -> tuple[AlertSettings, ...]:
    """Return the alerts of the settings and the default ones. Raises BadInput for an alert on an unknown figure."""
    budget = settings.budget_usd_per_month is not None
    alerts = watched_alerts(settings.alerts, settings.delivery_alerts_to, budget=budget)
    for alert in alerts:
        check_figure(alert.when, f"alerts.{alert.name}.when")
    return alerts


@dataclass(frozen=True, slots=True)
class _Measured:
    """Measured values of an alert's figure."""

    values: Mapping[str, float | None]
    """By target."""
    recorded: bool
    """Whether any host was recorded in the window; if none was, a missing target may still run."""


class AlertWatch:
    """Evaluation of the alerts of the settings over one database."""

    def __init__(
        self,
        where: StoreLocation,
        settings: Settings,
        send: Send | None = None,
        open_: Callable[[StoreLocation], Store] = open_store,
    ) -> None:
        """Raise BadInput for an alert on an unknown figure."""
        self._location, self._settings, self._open = where, settings, open_
        self._all = alerts_of(settings)
        self._alerts = [alert for alert in self._all if alert.enabled]
        self._send = send or sender(settings)
        self._months = RecentMonths()

    def round(self, now_ts: int) -> None:
        """Evaluate every alert and send due events. Raises StoreError."""
        measured = self._measured(now_ts)
        advice = AdviceRepository(self._location)
        with advice.writing() as connection:
            rows = repository.alerts(connection)
            stored = {(row.name, row.target): _state_of(row.state, row.since_ts, row.body) for row in rows}
            for alert in self._alerts:
                self._advance(connection, alert, measured[alert.name], stored, now_ts)
            watched = {alert.name for alert in self._alerts}
            for row in rows:
                if row.name not in watched:
                    self._resolve_unwatched(connection, (row.name, row.target), Phase(row.state), row.body, now_ts)
            repository.forget_alert_deliveries(connection, now_ts - KEPT_S)
        self._deliver(advice, now_ts)

    def _measured(self, now_ts: int) -> Mapping[str, _Measured]:
        """Return the measured figure of each alert by name; alerts of equal windows share one reading."""
        store = self._open(self._location)
        figures_by_window = {
            window_s: Figures(store, self._settings, int(window_s), now_ts, months=self._months)
            for window_s in {alert.window_s for alert in self._alerts}
        }
        measured = {}
        for alert in self._alerts:
            figures = figures_by_window[alert.window_s]
            values = {
                _target(alert, name): figure.value
                for name, figure in figures.of(alert.when.figure, alert.scope.kind).items()
                if alert.scope.kind == "fleet" or alert.scope.covers(name)
            }
            measured[alert.name] = _Measured(values, figures.recorded)
        return measured

    def _advance(
        self,
        connection: Connection,
        alert: AlertSettings,
        measured: _Measured,
        stored: Mapping[Key, AlertState],
        now_ts: int,
    ) -> None:
        """Store the next state of an alert for each target, and queue its event."""
        missing = sorted(target for name, target in stored if name == alert.name and target not in measured.values)
        gone = missing if measured.recorded else ()
        for target, value in [*measured.values.items(), *((target, None) for target in gone)]:
            stored_state = stored.get((alert.name, target))
            holds = None if value is None else alert.when.holds(value)
            if target in gone:
                holds = False
            state, event = advance(stored_state, holds, now_ts, alert.for_s)
            if state is None:
                if stored_state is not None:
                    repository.drop_alert(connection, alert.name, target)
            elif holds is not None:
                repository.put_alert(connection, _stored_row(alert, target, state, value, now_ts))
            if event is not None:
                body = body_of(alert, target, event, value, now_ts, GONE if target in gone else None)
                _queue(connection, alert.name, target, event, body, _destination_keys(alert), now_ts)

    def _resolve_unwatched(self, connection: Connection, key: Key, phase: Phase, body: str, now_ts: int) -> None:
        """Delete the state of an alert that is no longer watched; if it fired, queue its resolution."""
        (name, target), stored = key, json.loads(body)
        dropped = repository.drop_alert(connection, name, target)
        if not dropped or phase is Phase.PENDING or "to" not in stored:  # an earlier version stored no destinations
            return
        when = FigureLimit(stored["figure"], stored["operator"], stored["limit"])
        reason = DISABLED if any(alert.name == name for alert in self._all) else REMOVED
        unwatched = AlertSettings(name, when, FLEET, 0.0, stored["window_s"])
        reachable = [key for key in stored["to"] if key in self._destinations]
        if len(reachable) < len(stored["to"]):
            # Only the settings have the URL of a webhook: it was removed with the alert.
            log.warning("alert %s: its end is not sent to its webhook, whose URL was removed too", name)
            reachable = list(dict.fromkeys([*reachable, LOG]))
        resolved = body_of(unwatched, target, AlertEventKind.RESOLVED, None, now_ts, reason)
        _queue(connection, name, target, AlertEventKind.RESOLVED, resolved, reachable, now_ts)

    @property
    def _destinations(self) -> Mapping[str, str]:
        configured = {destination for alert in self._all for destination in alert.to}
        return {destination_key(destination): destination for destination in {LOG, MAIL, *configured}}

    def _deliver(self, advice: AdviceRepository, now_ts: int) -> None:
        destinations = self._destinations
        with advice.writing() as connection:
            # Claimed before sending: only one of two advisors sends it, and a crash only delays it.
            claimed = [
                row
                for row in repository.due_alert_deliveries(connection, now_ts)
                if _store_try(connection, row.delivery_id, row.tries, row.tries + 1, "not answered", now_ts)
            ]
        for row in claimed:
            tries, destination = row.tries + 1, destinations.get(row.destination)
            error: str | None = "its destination is no longer in the settings"
            if destination is not None:
                error = self._try_send(destination, row.body, row.delivery_id, now_ts)
                if error is not None:
                    log.error("alert %s: try %d of %d: %s", row.name, tries, TRIES, error)
            with advice.writing() as connection:
                _store_try(connection, row.delivery_id, tries, tries, error, now_ts)

    def _try_send(self, destination: str, body: str, delivery_id: int, now_ts: int) -> str | None:
        try:
            self._send(destination, body, now_ts, f"{delivery_id % 2**64:016x}")
        except PertokenError as error:
            return str(error)
        return None


def _store_try(
    connection: Connection, delivery_id: int, read_tries: int, tries: int, error: str | None, now_ts: int
) -> bool:
    """Store the number of tries and the next one; return whether the stored number was still `read_tries`."""
    next_ts = None if error is None or tries >= TRIES else now_ts + BACKOFF_S * 2 ** (tries - 1)
    return repository.put_alert_delivery(
        connection, delivery_id, read_tries=read_tries, tries=tries, next_ts=next_ts, error=error
    )


def _destination_keys(alert: AlertSettings) -> list[str]:
    return [destination_key(destination) for destination in alert.to]


def _queue(
    connection: Connection,
    name: str,
    target: str,
    event: AlertEventKind,
    body: str,
    destinations: Sequence[str],
    now_ts: int,
) -> None:
    """Store an event for each destination, to be sent in this round."""
    for key in destinations:
        delivery_id = stable_id("alert", name, target, event.value, key, now_ts)
        values = {"delivery_id": delivery_id, "name": name, "destination": key, "body": body}
        due = {"created_ts": now_ts, "next_ts": now_ts, "tries": 0, "error": None}
        repository.add_alert_delivery(connection, values | due)


def _target(alert: AlertSettings, name: str) -> str:
    return "fleet" if alert.scope.kind == "fleet" else f"{alert.scope.kind}={name}"


def _state_of(phase: str, since_ts: int, body: str) -> AlertState:
    return AlertState(Phase(phase), since_ts, json.loads(body)["fired_ts"])


def _stored_row(
    alert: AlertSettings, target: str, state: AlertState, value: float | None, now_ts: int
) -> dict[str, object]:
    when = alert.when
    body = {
        "figure": when.figure,
        "operator": when.operator,
        "limit": when.limit,
        "window_s": alert.window_s,
        "to": _destination_keys(alert),
        "value": value,
        "fired_ts": state.fired_ts,
    }
    return {
        "name": alert.name,
        "target": target,
        "state": state.phase.value,
        "since_ts": state.since_ts,
        "seen_ts": now_ts,
        "body": json.dumps(body, sort_keys=True),
    }


def standing_alerts(store: Store) -> Sequence[AlertRow]:
    """Return the stored states of alerts; empty without an advice database. Raises StoreError."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return repository.alerts(connection)


class Phase(StrEnum):
    """Phase of an alert with a state; it has none while its condition is false."""

    PENDING = "PENDING"
    """The condition holds, but not yet for long enough."""
    FIRING = "FIRING"
    """The condition held for long enough; the event was sent."""
    CLEARING = "CLEARING"
    """The condition ended after firing, but not yet for long enough."""


class AlertEventKind(StrEnum):
    """Kind of event that is sent."""

    FIRED = "fired"
    RESOLVED = "resolved"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertState:
    """State of an alert for a target."""

    phase: Phase
    since_ts: int
    """Start of the phase."""
    fired_ts: int | None = None


def advance(
    state: AlertState | None, holds: bool | None, now_ts: int, for_s: float
) -> tuple[AlertState | None, AlertEventKind | None]:
    """Return the next state and the event to send. `holds` None: the figure is unknown, so the state stays."""
    if holds is None:
        return state, None
    if state is None:
        if not holds:
            return None, None
        state = AlertState(Phase.PENDING, now_ts)
    if holds:
        if state.phase is Phase.CLEARING:
            return replace(state, phase=Phase.FIRING, since_ts=state.fired_ts or now_ts), None
        if state.phase is Phase.PENDING and now_ts - state.since_ts >= for_s:
            return AlertState(Phase.FIRING, now_ts, now_ts), AlertEventKind.FIRED
        return state, None
    if state.phase is Phase.PENDING:
        return None, None
    if state.phase is Phase.FIRING:
        state = replace(state, phase=Phase.CLEARING, since_ts=now_ts)
    if now_ts - state.since_ts >= for_s:
        return None, AlertEventKind.RESOLVED
    return state, None


def sender(settings: Settings) -> Send:
    """Return the function that sends an event to a destination, by the settings."""

    def send(destination: str, body: str, now_ts: int, delivery_id: str) -> None:
        if destination == LOG:
            log.warning("%s", sentence(body))
        elif destination == MAIL:
            text = sentence(body)
            delivery.send(settings, text.partition(" (limit")[0], f"{text}\n")
        else:
            own_hosts = settings.delivery_own_hosts
            chat, url = chat_of(destination)
            if chat is None:
                file, variable = settings.delivery_secret_file, settings.delivery_secret_env
                secret = read_secret(file, variable, "delivery.secret_file")
                delivery.post(url, body.encode(), now_ts, secret=secret, delivery_id=delivery_id, own_hosts=own_hosts)
            else:
                request = _REQUESTS[chat](url, event_of(body), sentence(body))
                delivery.post(request.url, request.data, now_ts, own_hosts=own_hosts, headers=request.headers)

    return send


def send_test(alert: AlertSettings, send: Send, now_ts: int) -> dict[str, str | None]:
    """Send a test event to each destination of an alert; return its error, or None, by masked destination."""
    target = str(alert.scope)
    body = body_of(alert, target, AlertEventKind.TEST, None, now_ts)
    outcomes: dict[str, str | None] = {}
    for destination in alert.to:
        try:
            send(destination, body, now_ts, f"test-{alert.name}-{now_ts}")
            outcomes[masked(destination)] = None
        except PertokenError as error:
            outcomes[masked(destination)] = str(error)
    return outcomes


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """Event of an alert for a target; its JSON has these keys, and `version`."""

    alert: str
    event: AlertEventKind
    severity: str
    target: str
    figure: str
    value: float | None
    unit: str
    operator: str
    limit: float
    window_s: float
    at: int
    """Epoch seconds."""
    reason: str | None
    """Cause of the event; None: the value crossed the limit."""

    @property
    def value_text(self) -> str:
        """The value with its unit."""
        return "not known" if self.value is None else f"{self.value:g} {self.unit}"

    @property
    def limit_text(self) -> str:
        """The limit with its operator."""
        return f"{self.operator} {self.limit:g}"


def body_of(
    alert: AlertSettings,
    target: str,
    event: AlertEventKind,
    value: float | None,
    now_ts: int,
    reason: str | None = None,
) -> str:
    """Return the JSON of an event. `reason`: its cause; None: the value crossed the limit."""
    unit = FIGURES[alert.when.figure].unit
    comparison = (alert.when.figure, value, unit, alert.when.operator, alert.when.limit, alert.window_s)
    message = AlertMessage(alert.name, event, alert.severity, target, *comparison, now_ts, reason)
    return json.dumps({"version": VERSION, **asdict(message)}, sort_keys=True)


def event_of(body: str) -> AlertMessage:
    """Return the event of a JSON text; one from an earlier version lacks `severity` and `reason`."""
    values = {"severity": "warning", "reason": None, **json.loads(body)}
    fields = {field.name: values[field.name] for field in dataclasses.fields(AlertMessage)}
    return AlertMessage(**{**fields, "event": AlertEventKind(fields["event"])})


def sentence(body: str) -> str:
    """Return the JSON of an event as one line of text."""
    event = event_of(body)
    value = event.reason if event.value is None and event.reason else event.value_text
    return literal(
        f"alert {event.alert} {event.event}: {event.figure} of {event.target} is {value} (limit {event.limit_text}), "
        f"{format_utc(event.at)}"
    )


def with_alerts(report: FleetReport, events: Iterable[tuple[str, int]]) -> FleetReport:
    """Return a report that includes events of alerts, given as (JSON, epoch seconds), newest first."""
    lines = [EventLine(ts, KIND, sentence(body), 1) for body, ts in events if ts <= report.now_ts]
    return replace(report, events=tuple(sorted((*report.events, *lines), key=lambda event: -event.ts)))


def destination_key(destination: str) -> str:
    """Return the stored key of a destination: a hash of a URL, which may be secret."""
    if destination in (LOG, MAIL):
        return destination
    return f"webhook:{sha256(destination.encode()).hexdigest()[:16]}"


_MAX_SUMMARY, _MAX_MESSAGE, _MAX_KEY, _MAX_TEXT = 1024, 130, 255, 2900
"""Maximum characters: summary of PagerDuty, message of Opsgenie, key of PagerDuty, text block of Slack."""
_CARD = "application/vnd.microsoft.card.adaptive"
_CARD_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"


@dataclass(frozen=True, slots=True)
class AlertPost:
    """POST of JSON to a chat or paging service."""

    url: str
    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """Its body as JSON."""
        return json.dumps(self.body, sort_keys=True).encode()


def _slack(url: str, event: AlertMessage, text: str) -> AlertPost:
    # A name such as `<!channel>` would call everyone.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:_MAX_TEXT]
    mark = {AlertEventKind.FIRED: ":red_circle:", AlertEventKind.RESOLVED: ":large_green_circle:"}.get(
        event.event, ":white_circle:"
    )
    block = {"type": "section", "text": {"type": "mrkdwn", "text": f"{mark} {escaped}", "verbatim": True}}
    return AlertPost(url, {"text": escaped, "blocks": [block]})


def _teams(url: str, event: AlertMessage, text: str) -> AlertPost:
    colour = {AlertEventKind.FIRED: "Attention", AlertEventKind.RESOLVED: "Good"}.get(event.event, "Default")
    title = f"{event.alert} {event.event}"
    facts = [{"title": title, "value": _unformatted(value)} for title, value in _facts(event).items()]
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
    return AlertPost(url, {"type": "message", "attachments": [attachment]})


def _pagerduty(url: str, event: AlertMessage, text: str) -> AlertPost:
    address, key = urldefrag(url)
    body: dict[str, object] = {
        "routing_key": key,
        "event_action": "resolve" if event.event is AlertEventKind.RESOLVED else "trigger",
        "dedup_key": _alias(event),
    }
    if body["event_action"] == "trigger":
        body["payload"] = {
            "summary": text[:_MAX_SUMMARY],
            "source": literal(event.target),
            "severity": "info" if event.event is AlertEventKind.TEST else event.severity,
            "timestamp": datetime.fromtimestamp(event.at, UTC).isoformat(),
            "custom_details": _facts(event),
        }
        body["client"] = "pertoken"
    return AlertPost(address, body)


def _opsgenie(url: str, event: AlertMessage, text: str) -> AlertPost:
    base, key = urldefrag(url)
    address, headers = f"{base.rstrip('/')}/v2/alerts", {"Authorization": f"GenieKey {key}"}
    alias = _alias(event)
    if event.event is AlertEventKind.RESOLVED:
        closing = f"{address}/{quote(alias, safe='')}/close?identifierType=alias"
        return AlertPost(closing, {"source": "pertoken", "note": text}, headers)
    priority = "P5" if event.event is AlertEventKind.TEST else "P1" if event.severity == "critical" else "P3"
    body = {
        "message": text[:_MAX_MESSAGE],
        "alias": alias,
        "description": text,
        "source": "pertoken",
        "priority": priority,
        "tags": ["pertoken", event.alert],
        "details": _facts(event),
    }
    return AlertPost(address, body, headers)


_REQUESTS: Mapping[str, Callable[[str, AlertMessage, str], AlertPost]] = {
    "slack": _slack,
    "teams": _teams,
    "pagerduty": _pagerduty,
    "opsgenie": _opsgenie,
}


def _alias(event: AlertMessage) -> str:
    """Return the key that all events of an alert for a target share, so that resolving closes the fired one."""
    test = "/test" if event.event is AlertEventKind.TEST else ""
    key = f"pertoken/{event.alert}/{literal(event.target)}{test}"
    return key if len(key) <= _MAX_KEY else f"pertoken/{event.alert}/{sha256(key.encode()).hexdigest()}"


def _facts(event: AlertMessage) -> dict[str, str]:
    facts = {
        "Target": literal(event.target),
        "Figure": event.figure,
        "Value": event.value_text,
        "Limit": event.limit_text,
    }
    return facts if event.reason is None else {**facts, "Reason": event.reason}


def _unformatted(text: str) -> str:
    """Return text that an Adaptive Card shows unformatted, so that no name becomes a link."""
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#+!|<>~" else character for character in text)
