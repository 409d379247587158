"""`pertoken alerts`: the alerts of the settings, how they stand, and whether their destinations answer."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from pertoken.cli.options import config_option, db_option, echo, echo_json, json_option, settings_of


@click.group(short_help="List alerts and test where they are sent.")
def alerts() -> None:
    """List the alerts of the settings, or send a test to where one is sent.

    The advisor service (`pertoken advise --every`, `pertoken up`) evaluates them each minute; docs/alerts.md.
    """


@alerts.command("list", short_help="List every alert and how it stands.")
@json_option
@db_option
def list_(config_file: str | None, db: str | None, as_json: bool) -> None:
    """List every alert of the settings with the targets that it holds for."""
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
            "name": each.name,
            "when": str(each.when),
            "for_s": each.for_s,
            "window_s": each.window_s,
            "to": list(map(masked, each.to)),
            "holds": [
                {
                    "target": row.target,
                    "state": row.state,
                    "since": row.since_ts,
                    "value": json.loads(row.body)["value"],
                }
                for row in rows
                if row.name == each.name
            ],
        }
        for each in settings.alerts
    ]
    if as_json:
        echo_json(lines)
        return
    if not lines:
        echo("No alert is set: [alerts.NAME] in the settings (docs/alerts.md).")
    for each, line in zip(settings.alerts, lines, strict=True):
        echo(f"{each.name}: {each.when} for {format_duration(each.for_s)}, to {', '.join(map(masked, each.to))}")
        for row in (row for row in rows if row.name == each.name):
            since = datetime.fromtimestamp(row.since_ts, UTC).strftime("%Y-%m-%d %H:%MZ")
            value = json.loads(row.body)["value"]
            echo(f"  {row.state.lower()} since {since}: {row.target}, {'not known' if value is None else f'{value:g}'}")
        if not line["holds"]:
            echo("  does not hold")


@alerts.command("test", short_help="Send a test to where an alert is sent.")
@click.argument("name")
@config_option
def test(config_file: str | None, name: str) -> None:
    """Send a test event of the alert NAME to each of its destinations; exit 1 if one does not take it."""
    import logging
    import sys
    import time

    from pertoken.errors import BadInput
    from pertoken.reports.alerts.send import send_test, sender
    from pertoken.reports.alerts.watch import check_alerts

    settings = settings_of(config_file)
    check_alerts(settings)
    alert = next((each for each in settings.alerts if each.name == name), None)
    if alert is None:
        known = ", ".join(each.name for each in settings.alerts) or "none"
        raise BadInput(f"no alert is named {name!r}; the settings have {known}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    found = send_test(alert, sender(settings), int(time.time()))
    for destination, error in found.items():
        echo(f"{destination}: {'taken' if error is None else f'failed: {error}'}")
    if any(found.values()):
        sys.exit(1)
