"""`pertoken alerts`: the alerts of the settings, their states, and tests of their destinations."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from pertoken.cli.options import config_option, db_option, echo, echo_json, json_option, settings_of


@click.group(short_help="List alerts and test their destinations.")
def alerts() -> None:
    """List the alerts of the settings, or send a test event of one.

    The advisor service (`pertoken advise --every`, `pertoken up`) evaluates them each minute; docs/alerts.md.
    """


@alerts.command("list", short_help="List every alert with its state.")
@json_option
@db_option
def list_(config_file: str | None, db: str | None, as_json: bool) -> None:
    """List every alert of the settings with the targets for which its condition holds."""
    import json

    from pertoken.reports.alerts.watch import check_alerts, standing_alerts
    from pertoken.settings.alerts import masked
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.units import format_duration

    settings = settings_of(config_file, db=db)
    check_alerts(settings)
    rows = standing_alerts(open_store(locate(settings.db, settings.advice)))
    lines = [
        {
            "name": alert.name,
            "when": str(alert.when),
            "for_s": alert.for_s,
            "window_s": alert.window_s,
            "to": list(map(masked, alert.to)),
            "enabled": alert.enabled,
            "holds": [
                {
                    "target": row.target,
                    "state": row.state,
                    "since": row.since_ts,
                    "value": json.loads(row.body)["value"],
                }
                for row in rows
                if row.name == alert.name
            ],
        }
        for alert in settings.alerts
    ]
    if as_json:
        echo_json(lines)
        return
    if not lines:
        echo("No alert is set: [alerts.NAME] in the settings (docs/alerts.md).")
    for alert, line in zip(settings.alerts, lines, strict=True):
        echo(f"{alert.name}: {alert.when} for {format_duration(alert.for_s)}, to {', '.join(map(masked, alert.to))}")
        for row in (row for row in rows if row.name == alert.name):
            since = datetime.fromtimestamp(row.since_ts, UTC).strftime("%Y-%m-%d %H:%MZ")
            value = json.loads(row.body)["value"]
            echo(f"  {row.state.lower()} since {since}: {row.target}, {'not known' if value is None else f'{value:g}'}")
        if not line["holds"]:
            echo("  does not hold" if alert.enabled else "  disabled")


@alerts.command("test", short_help="Send a test event of an alert.")
@click.argument("name")
@config_option
def test(config_file: str | None, name: str) -> None:
    """Send a test event of the alert NAME to each of its destinations; exit 1 if one fails."""
    import logging
    import sys
    import time

    from pertoken.errors import BadInput
    from pertoken.reports.alerts.send import send_test, sender
    from pertoken.reports.alerts.watch import check_alerts

    settings = settings_of(config_file)
    check_alerts(settings)
    alert = next((alert for alert in settings.alerts if alert.name == name), None)
    if alert is None:
        known = ", ".join(alert.name for alert in settings.alerts) or "none"
        raise BadInput(f"no alert is named {name!r}; the settings have {known}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    outcomes = send_test(alert, sender(settings), int(time.time()))
    for destination, error in outcomes.items():
        echo(f"{destination}: {'delivered' if error is None else f'failed: {error}'}")
    if any(outcomes.values()):
        sys.exit(1)
