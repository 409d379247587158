"""`pertoken report`: a period as HTML, Markdown, CSV or FOCUS rows."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.lake import DUCKDB, is_lake, session, views
from pertoken.cli.options import (
    AsOf,
    Database,
    Progress,
    at_option,
    check_recorded,
    db_option,
    echo,
    engine_option,
    fail_on_option,
    judged,
    leave,
    report_faults,
    settings_of,
    warn_of_other_settings,
    write_file,
)
from pertoken.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pertoken.config import Settings
    from pertoken.reports.figures import ReportFigures
    from pertoken.settings.alerts import FigureLimit
    from pertoken.store.connect.open import Store


@click.command(short_help="Write a report as HTML, Markdown, CSV or FOCUS rows.")
@click.option("--html", "form", flag_value="html", help="One HTML file with plots, which loads no other resource.")
@click.option("--md", "form", flag_value="md", help="Markdown.")
@click.option("--csv", "form", flag_value="csv", help="Chargeback by model, team and tenant as CSV.")
@click.option("--focus", "form", flag_value="focus", help="FOCUS 1.4 rows as CSV.")
@click.option("--weekly", is_flag=True, help="The last seven days in at most 25 lines of text.")
@click.option("--from", "start", metavar="TIME", help="Start: 2026-11-21T10:00Z, or 24h (ago) [default: 30d].")
@click.option(
    "--to",
    "end",
    metavar="TIME",
    help="End [default: now, or --at]; with --weekly the destination: file, webhook or mail.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write [default: stdout].")
@engine_option
@fail_on_option
@at_option
@db_option
def report(
    database: Database,
    form: str | None,
    weekly: bool,
    start: str | None,
    end: str | None,
    out: Path | None,
    fail_on: tuple[FigureLimit, ...],
    moment: AsOf,
    engine: str | None,
) -> None:
    """Write what a period cost: spend, $/Mtok by model and tenant, where a dollar goes, savings and regressions.

    The period starts at a full hour of the clock. With --to or --at everything is as of its end, and the same database
    always gives the same bytes. Amounts are US dollars; the lines of each table sum to the bill.

    --weekly compares seven days with the seven before; each line has the command that shows its evidence. --to file
    (the default, to --out or standard output), webhook (delivery.webhook) or mail (delivery.mail_to). Nothing is
    sent automatically: call it from a timer.

    With --db lake:URL it is of all databases of a lake (docs/lake.md).

    Each --fail-on is a gate over the period: exit 1 if one is true, 3 if one cannot be measured.
    """
    from pertoken.reports.figures import period_of, read_figures

    if is_lake(database.db):
        if weekly or form not in ("html", "md") or fail_on or end is not None:
            raise BadInput("of a lake there is --html and --md, with --from and --at alone")
        settings = settings_of(database.config_file)
        period = period_of(start, end, moment.ts, dated=moment.dated)
        return _write_lake(str(database.db), form, period.hours, moment, engine, settings.budget_usd_per_month, out)
    if weekly:
        if form is not None or start is not None or fail_on:
            raise BadInput("--weekly always covers seven days as text: give it with --to, --out or --at only")
        return send_week(database, end or "file", out, moment)
    if form is None:
        raise BadInput("choose a format: --html, --md, --csv or --focus")
    settings, store = database.opened(moment)
    warn_of_other_settings(store.location, settings)
    period = period_of(start, end, moment.ts, dated=moment.dated)
    report_faults(AsOf(period.end, period.dated), store, period.seconds)
    with Progress("Reading the period"):
        figures = read_figures(store, settings, period)
        text = _focus(figures, settings, store) if form == "focus" else _writer(form)(figures)
    gates = judged(fail_on, store, settings, period.seconds, AsOf(period.end, period.dated))
    _write(text, form, out, period.text)
    leave(gates)


def _write(text: str, form: str, out: Path | None, what: str) -> None:
    if out is not None:
        write_file(out, text)
        echo(f"{out}: {what}.", err=True)
    elif form == "md":
        echo(text, nl=False)
    else:
        sys.stdout.write(text)


def _write_lake(
    db: str, form: str, hours: int, moment: AsOf, engine: str | None, budget_usd: float | None, out: Path | None
) -> None:
    from pertoken.reports.html import lake_html, lake_markdown

    with Progress(f"Reading {hours} hours of {db}"), session(db, hours, moment, engine or DUCKDB) as opened:
        tables = views(opened, budget_usd)
        coverage = opened.coverage
    write = lake_html if form == "html" else lake_markdown
    _write(write(db, tables, coverage), form, out, db)


def _focus(figures: ReportFigures, settings: Settings, store: Store) -> str:
    from pertoken.reports.focus import energy_by_day, focus_csv

    return focus_csv(figures, settings, energy_by_day(store, figures.period))


def _writer(form: str) -> Callable[[ReportFigures], str]:
    if form == "html":
        from pertoken.reports.html import page

        return page
    if form == "md":
        from pertoken.reports.markdown import markdown

        return markdown
    from pertoken.reports.markdown import chargeback_csv

    return chargeback_csv


DESTINATIONS = ("file", "webhook", "mail")


def send_week(database: Database, to: str, out: Path | None, moment: AsOf) -> None:
    """Write the week to a file, or send it. Raises StoreError, BadInput, NotDelivered."""
    from pertoken.reports.markdown import week_of, weekly_lines
    from pertoken.store.connect.open import open_store

    settings, where = database.located()
    if to not in DESTINATIONS:
        raise BadInput(f"--weekly --to {to}: write {', '.join(DESTINATIONS[:-1])} or {DESTINATIONS[-1]}")
    if to != "file" and out is not None:
        raise BadInput("--out is for --to file")
    if to == "webhook" and settings.delivery_webhook is None:
        raise BadInput("--to webhook needs delivery.webhook in the settings")
    store = open_store(where)
    check_recorded(moment, store)
    warn_of_other_settings(where, settings)
    report_faults(moment, store, 14 * 86_400)
    with Progress("Reading two weeks"):
        lines = weekly_lines(store, settings, week_of(moment.ts, dated=moment.dated))
    text = "\n".join(lines) + "\n"
    if to == "mail":
        from pertoken.reports.delivery import send

        send(settings, lines[0], text)
    elif to == "webhook" and settings.delivery_webhook is not None:
        from pertoken.access import read_secret
        from pertoken.reports.delivery import post

        secret = read_secret(settings.delivery_secret_file, settings.delivery_secret_env, "delivery.secret_file")
        body = json.dumps({"version": 1, "report": "weekly", "text": text}).encode()
        own_hosts = settings.delivery_own_hosts
        post(settings.delivery_webhook, body, int(time.time()), secret=secret, own_hosts=own_hosts)
    elif out is None:
        echo(text, nl=False)
    else:
        write_file(out, text)
