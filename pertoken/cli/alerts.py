"""`pertoken alerts`: the alerts of the settings, their states, and tests of their destinations."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, db_option, echo, echo_json, json_option
from pertoken.errors import BadInput
from pertoken.units import format_duration

if TYPE_CHECKING:
    from pertoken.store.connect.location import StoreLocation


@click.group(short_help="List alerts and test their destinations.")
def alerts() -> None:
    """List alerts, or send a test event of one.

    The advisor (`pertoken advisor`, `pertoken up`) evaluates them each minute; docs/alerts.md.
    """


@alerts.command("list", short_help="List every alert with its state.")
@json_option
@db_option
def list_(database: Database, as_json: bool) -> None:
    """List the alerts of the settings and the default ones, with the targets for which each holds."""
    from pertoken.reports.alerts import alerts_of, standing_alerts
    from pertoken.settings.alerts import masked

    settings, store = database.opened()
    watched, rows, unevaluated = alerts_of(settings), standing_alerts(store), _unevaluated(store.location)
    lines = [
        {
            "name": alert.name,
            "when": str(alert.when),
            "for_s": alert.for_s,
            "window_s": alert.window_s,
            "to": list(map(masked, alert.to)),
            "enabled": alert.enabled,
            "severity": alert.severity,
            "evaluated": alert.enabled and unevaluated is None,
            "holds": [
                {"target": row.target, "state": row.state, "since": row.since_ts, "value": _value(row.body)}
                for row in rows
                if row.name == alert.name
            ],
        }
        for alert in watched
    ]
    if as_json:
        echo_json(lines)
        return
    for alert, line in zip(watched, lines, strict=True):
        echo(f"{alert.name}: {alert.when} for {format_duration(alert.for_s)}, to {', '.join(map(masked, alert.to))}")
        for row in (row for row in rows if row.name == alert.name):
            since = datetime.fromtimestamp(row.since_ts, UTC).strftime("%Y-%m-%d %H:%MZ")
            value = _value(row.body)
            echo(f"  {row.state.lower()} since {since}: {row.target}, {'not known' if value is None else f'{value:g}'}")
        if not line["holds"]:
            echo(f"  {'disabled' if not alert.enabled else unevaluated or 'does not hold'}")


def _value(body: str) -> float | None:
    value: float | None = json.loads(body)["value"]
    return value


def _unevaluated(where: StoreLocation) -> str | None:
    """Return why alerts are not evaluated yet, with the next step; None if they are."""
    from pertoken.agent.doctor import running_jobs
    from pertoken.reports.alerts import JOB
    from pertoken.store.connect.turn import is_served

    if not is_served(where):
        return "not evaluated: no advisor serves this database; `sudo pertoken advisor install`, or `pertoken up`"
    ran = where.url is not None or any(state.name == JOB and state.last_ts for _, state in running_jobs(where))
    return None if ran else "not evaluated yet: the advisor does so each minute"


@alerts.command("test", short_help="Send a test event of an alert.")
@click.argument("name")
@db_option
def test(database: Database, name: str) -> None:
    """Send a test event of the alert NAME to each of its destinations; exit 1 if one fails."""
    import logging

    from pertoken.reports.alerts import alerts_of, send_test, sender

    settings = database.settings()
    watched = {alert.name: alert for alert in alerts_of(settings)}
    if name not in watched:
        raise BadInput(f"no alert is named {name!r}; there are {', '.join(watched)}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    outcomes = send_test(watched[name], sender(settings), int(time.time()))
    for destination, error in outcomes.items():
        echo(f"{destination}: {'delivered' if error is None else f'failed: {error}'}")
    if any(outcomes.values()):
        sys.exit(1)
