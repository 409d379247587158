"""One round of all alerts: measure, update states, send due events."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pertoken.config import Settings
from pertoken.costs.month import RecentMonths
from pertoken.errors import PertokenError
from pertoken.reports.alerts.message import DISABLED, GONE, REMOVED, body_of, destination_key
from pertoken.reports.alerts.send import Send, log, sender
from pertoken.reports.alerts.state import AlertState, Event, Phase, advance
from pertoken.reports.gates.measure import Figures
from pertoken.reports.gates.written import check_figure
from pertoken.settings.alerts import FLEET, LOG, MAIL, AlertSettings, Comparison, watched_alerts
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.shared import stable_id

JOB = "alerts"
"""Name of the job of the advisor that evaluates alerts."""
EVERY_S = 60.0
TRIES = 5
BACKOFF_S = 60
"""Wait after the first failed try; doubled after each further one."""
KEPT_S = 30 * 86_400
"""Time that deliveries are stored."""
Key = tuple[str, str]
"""Name of an alert, and a target."""


def alerts_of(settings: Settings) -> tuple[AlertSettings, ...]:
    """Return the alerts of the settings and the default ones. Raises BadInput for an alert on an unknown figure."""
    budget = settings.budget_usd_per_month is not None
    alerts = watched_alerts(settings.alerts, settings.delivery_alerts_to, budget=budget)
    for alert in alerts:
        check_figure(alert.when, f"alerts.{alert.name}.when")
    return alerts


@dataclass(frozen=True, slots=True)
class _Measured:
    """Values of an alert's figure."""

    values: Mapping[str, float | None]
    """By target."""
    recorded: bool
    """Whether any host was recorded in the window. If none was, a target that is missing may still run."""


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
        self._where, self._settings, self._open = where, settings, open_
        self._all = alerts_of(settings)
        self._alerts = [alert for alert in self._all if alert.enabled]
        self._send = send or sender(settings)
        self._months = RecentMonths()

    def round(self, now_ts: int) -> None:
        """Evaluate every alert and send what is due. Raises StoreError."""
        measured = self._measured(now_ts)
        advice = AdviceRepository(self._where)
        with advice.writing() as connection:
            stored = {(row.name, row.target): row for row in repository.alerts(connection)}
            for alert in self._alerts:
                self._move(connection, alert, measured[alert.name], stored, now_ts)
            watched = {alert.name for alert in self._alerts}
            for row in stored.values():
                if row.name not in watched:
                    self._end(connection, row, now_ts)
            repository.forget_alert_deliveries(connection, now_ts - KEPT_S)
        self._deliver(advice, now_ts)

    def _measured(self, now_ts: int) -> Mapping[str, _Measured]:
        """Return the values of each alert's figure; alerts of one window share one reading."""
        store = self._open(self._where)
        windows = {
            window_s: Figures(store, self._settings, int(window_s), now_ts, months=self._months)
            for window_s in {alert.window_s for alert in self._alerts}
        }
        measured = {}
        for alert in self._alerts:
            figures = windows[alert.window_s]
            values = {
                _target(alert, name): figure.value
                for name, figure in figures.of(alert.when.figure, alert.scope.kind).items()
                if alert.scope.kind == "fleet" or alert.scope.covers(name)
            }
            measured[alert.name] = _Measured(values, figures.recorded)
        return measured

    def _move(
        self,
        connection: Any,
        alert: AlertSettings,
        measured: _Measured,
        stored: Mapping[Key, Any],
        now_ts: int,
    ) -> None:
        missing = sorted(target for name, target in stored if name == alert.name and target not in measured.values)
        gone = missing if measured.recorded else ()
        for target, value in [*measured.values.items(), *((target, None) for target in gone)]:
            row = stored.get((alert.name, target))
            holds = False if target in gone else None if value is None else alert.when.holds(value)
            state, event = advance(None if row is None else _state(row), holds, now_ts, alert.for_s)
            if state is None:
                if row is not None:
                    repository.drop_alert(connection, alert.name, target)
            elif holds is not None:
                repository.put_alert(connection, _row(alert, target, state, value, now_ts))
            if event is not None:
                body = body_of(alert, target, event, value, now_ts, GONE if target in gone else None)
                _queue(connection, alert.name, target, event, body, _keys(alert), now_ts)

    def _end(self, connection: Any, row: Any, now_ts: int) -> None:
        """Delete the row of an alert that is no longer watched, and resolve it where it fired."""
        stored = json.loads(row.body)
        dropped = repository.drop_alert(connection, row.name, row.target)
        if not dropped or row.state == Phase.PENDING or "to" not in stored:  # as an earlier version stored it
            return
        when = Comparison(stored["figure"], stored["operator"], stored["limit"])
        alert = AlertSettings(row.name, when, FLEET, 0.0, stored["window_s"], ())
        reason = DISABLED if any(alert.name == row.name for alert in self._all) else REMOVED
        body = body_of(alert, row.target, Event.RESOLVED, None, now_ts, reason)
        reached = [key for key in stored["to"] if key in self._places]
        if len(reached) < len(stored["to"]):
            # The URL of a webhook is stored nowhere but in the settings, so it went with them.
            log.warning("alert %s: its end is not sent to its webhook, whose URL was removed too", row.name)
            reached = list(dict.fromkeys([*reached, LOG]))
        _queue(connection, row.name, row.target, Event.RESOLVED, body, reached, now_ts)

    @property
    def _places(self) -> Mapping[str, str]:
        """Destinations by their stored key."""
        written = {destination for alert in self._all for destination in alert.to}
        return {destination_key(destination): destination for destination in {LOG, MAIL, *written}}

    def _deliver(self, target: AdviceRepository, now_ts: int) -> None:
        places = self._places
        with target.writing() as connection:
            due = repository.due_alert_deliveries(connection, now_ts)
            # Claimed before it is sent, so that of two advisors one sends it, and a crash only delays it.
            claimed = [row for row in due if _note(connection, row, now_ts, "not answered")]
        for row in claimed:
            error = self._try(row, places.get(row.destination), now_ts)
            with target.writing() as connection:
                tries = row.tries + 1
                over = error is None or tries >= TRIES
                next_ts = None if over else now_ts + BACKOFF_S * 2 ** (tries - 1)
                repository.put_alert_delivery(
                    connection, row.delivery_id, read_tries=tries, tries=tries, next_ts=next_ts, error=error
                )

    def _try(self, row: Any, destination: str | None, now_ts: int) -> str | None:
        if destination is None:
            return "its destination is no longer in the settings"
        try:
            self._send(destination, row.body, now_ts, f"{row.delivery_id % 2**64:016x}")
        except PertokenError as error:
            log.error("alert %s: try %d of %d: %s", row.name, row.tries + 1, TRIES, error)
            return str(error)
        return None


def _note(connection: Any, row: Any, now_ts: int, error: str) -> bool:
    tries = row.tries + 1
    next_ts = None if tries >= TRIES else now_ts + BACKOFF_S * 2 ** (tries - 1)
    return repository.put_alert_delivery(
        connection, row.delivery_id, read_tries=row.tries, tries=tries, next_ts=next_ts, error=error
    )


def _keys(alert: AlertSettings) -> list[str]:
    return [destination_key(destination) for destination in alert.to]


def _queue(
    connection: Any, name: str, target: str, event: Event, body: str, destinations: Sequence[str], now_ts: int
) -> None:
    """Store an event for each of these destinations, to be sent."""
    for key in destinations:
        delivery_id = stable_id("alert", name, target, event.value, key, now_ts)
        values = {"delivery_id": delivery_id, "name": name, "destination": key, "body": body}
        due = {"created_ts": now_ts, "next_ts": now_ts, "tries": 0, "error": None}
        repository.add_alert_delivery(connection, values | due)


def _target(alert: AlertSettings, name: str) -> str:
    return "fleet" if alert.scope.kind == "fleet" else f"{alert.scope.kind}={name}"


def _state(row: Any) -> AlertState:
    return AlertState(Phase(row.state), row.since_ts, json.loads(row.body)["fired_ts"])


def _row(alert: AlertSettings, target: str, state: AlertState, value: float | None, now_ts: int) -> dict[str, Any]:
    when = alert.when
    body = {
        "figure": when.figure,
        "operator": when.operator,
        "limit": when.limit,
        "window_s": alert.window_s,
        "to": _keys(alert),
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


def standing_alerts(store: Store) -> Sequence[Any]:
    """Return the stored states of alerts; none without an advice database. Raises StoreError."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return repository.alerts(connection)
