"""`pertoken lake`: publish closed hours as Parquet, and look after the files; questions of `--db lake:URL`."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import (
    AsOf,
    Database,
    GroupingType,
    Progress,
    db_option,
    echo,
    echo_json,
    json_option,
    seconds_of,
    text_width,
)
from pertoken.errors import BadInput
from pertoken.settings.owners import BASES, is_basis
from pertoken.units import NANO_USD, counted, first_hour, format_utc

if TYPE_CHECKING:
    from pertoken.lake.manifest import LakeFiles
    from pertoken.lake.publish import Deleted, LakeSource
    from pertoken.lake.questions import Coverage, LakeSession
    from pertoken.text.lake import LakeTable

PREFIX = "lake:"
"""Prefix of a `--db` that is a lake."""
DUCKDB = "duckdb"
BY = ("model", "service", "cell", "provider", "region", "accelerator", "namespace", "workload", "hour", "day")
"""Keys that can group `costs` over a lake."""
TOKENS_BY = ("model", "service", "provider", "region", "namespace", "workload")
"""Those by which tokens are known, too, as they are by labels, jobs and slices."""
FORGET = ("namespace", "service", "model", "workload")
"""Columns with names that can be deleted."""
SHOWN_DAYS = 30
"""Days of the screens."""


@click.group(short_help="Publish closed hours as Parquet, for questions over many databases.")
def lake() -> None:
    """Publish closed hours of this database as Parquet files, and look after a lake of many databases.

    A lake is a folder, file:///FOLDER or s3://BUCKET/PREFIX. `pertoken costs`, `report` and `top` read it with --db
    lake:URL. Needs the extra `lake`.
    """


@lake.command(short_help="Publish the closed hours of a database.")
@click.argument("url")
@click.option("--cell", metavar="NAME", help="Name of this database in the lake [default: its host, or database].")
@click.option("--since", metavar="DAY", help="First day to read again [default: the last 7, and changed prices].")
@click.option("--fewer", is_flag=True, help="Replace a day although the database holds fewer hours of it now.")
@click.option("--every", metavar="TIME", help="Go on, and publish again after this time: 1h.")
@json_option
@db_option
def publish(
    database: Database, url: str, cell: str | None, since: str | None, fewer: bool, every: str | None, as_json: bool
) -> None:
    """Publish the closed hours of a database, day by day, and print what happened to each day.

    Publishing again changes nothing. A late row, or a past price that changed, makes a new version of its day, which
    replaces the old one at once. A publisher that is killed leaves the old day or the new one.
    """
    from pertoken.catalog.market import load_market
    from pertoken.lake.manifest import LakeFiles, cell_name, cell_of
    from pertoken.lake.publish import LakeSource
    from pertoken.store.connect.open import open_store

    settings, where = database.located()
    source = LakeSource(open_store(where), load_market(), settings, cell_name(cell or cell_of(where)))
    files, first = LakeFiles(url), _day("--since", since)
    period_s = None if every is None else max(60.0, seconds_of("--every", every))
    while True:
        _publish_once(source, files, first, fewer=fewer, as_json=as_json)
        if period_s is None:
            return
        time.sleep(period_s)


def _publish_once(source: LakeSource, files: LakeFiles, first: date | None, *, fewer: bool, as_json: bool) -> None:
    from pertoken.lake.publish import DayOutcome, publish

    days = []
    with Progress(f"Publishing {source.cell} to {files}") as progress:
        for day in publish(source, files, int(time.time()), lambda: time.time_ns() // 1000, first, fewer=fewer):
            progress.advance()
            days.append(day)
    if as_json:
        values = [
            {"day": str(day.day), "outcome": day.outcome.value, "rows": day.rows, "bytes": day.n_bytes} for day in days
        ]
        return echo_json({"cell": source.cell, "lake": str(files), "days": values})
    for day in days:
        if day.outcome is not DayOutcome.UNCHANGED:
            echo(f"{day.day}  {day.outcome:<9}  {day.rows:>12,} rows  {day.n_bytes:>14,} bytes")
    unchanged = sum(day.outcome is DayOutcome.UNCHANGED for day in days)
    if unchanged or not days:
        echo(f"{counted(unchanged, 'day')} unchanged." if days else "No hour is closed yet: nothing to publish.")
    if any(day.outcome is DayOutcome.KEPT for day in days):
        echo("kept: the database holds fewer hours than were published; --fewer replaces them.", err=True)


@lake.command("list", short_help="List the cells of a lake and what is published of them.")
@click.argument("url")
@json_option
def list_(url: str, as_json: bool) -> None:
    """List the cells of a lake: their days, newest closed hour, rows, bytes, and days that cannot be used."""
    from pertoken.lake.manifest import LakeFiles
    from pertoken.lake.reading import inventory

    cells = inventory(LakeFiles(url.removeprefix(PREFIX)))
    if as_json:
        return echo_json([cell.values() for cell in cells])
    for cell in cells:
        through = "–" if cell.through_ts is None else format_utc(cell.through_ts)
        echo(f"{cell.name}  {counted(cell.n_days, 'day')}, to {through}, {cell.rows:,} rows, {cell.n_bytes:,} bytes")
        for fault in cell.faults:
            echo(f"  left out: {fault}")


@lake.command(short_help="Compare every file with its checksum.")
@click.argument("url")
def verify(url: str) -> None:
    """Read every current file of a lake and compare it with its manifest; exit with 1 if one differs."""
    from pertoken.lake.manifest import LakeFiles
    from pertoken.lake.reading import all_days, verified

    with Progress("Reading all files"):
        days = verified(all_days(LakeFiles(url.removeprefix(PREFIX))))
    for fault in days.faults:
        echo(str(fault))
    echo(f"{counted(len(days.manifests), 'day')} as published, {counted(len(days.faults), 'day')} damaged.")
    sys.exit(bool(days.faults))


@lake.command(short_help="Delete old days, and versions that newer ones replaced.")
@click.argument("url")
@click.option("--before", metavar="DAY", help="Also delete all days before this one: 2026-01-01.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def prune(url: str, before: str | None, yes: bool) -> None:
    """Delete versions that newer ones replaced, and with --before all older days."""
    from pertoken.lake.manifest import LakeFiles
    from pertoken.lake.publish import prune

    first = _day("--before", before)
    files = LakeFiles(url.removeprefix(PREFIX))
    if first is not None and not yes:
        click.confirm(f"Delete every day before {first} from {files}?", abort=True, err=True)
    _report(prune(files, first, time.time_ns() // 1000))


@lake.command(short_help="Delete a name from every day; its dollars stay.")
@click.argument("url")
@click.argument("column", type=GroupingType(list(dict.fromkeys([*FORGET, *BASES]))))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def forget(url: str, column: str, name: str, yes: bool) -> None:
    """Delete a name of a namespace, service, model or workload, of a label (label:NAME), job, user or slice, from every
    published day.

    Its lines keep dollars and tokens, under "(deleted)", so that the bill still adds up. Rows published as stored
    (devices, epochs, events, receipts) of such a day are deleted, as their texts may hold it. The name stays out when a
    day is published again. The database itself is not changed.
    """
    from pertoken.lake.manifest import LakeFiles
    from pertoken.lake.publish import forget

    files = LakeFiles(url.removeprefix(PREFIX))
    if not yes:
        click.confirm(f"Delete the {column} {name!a} from every day of {files}?", abort=True, err=True)
    _report(forget(files, column, name, time.time_ns() // 1000))


def _report(deleted: Iterator[Deleted]) -> None:
    n_files = n_bytes = n_days = 0
    for day in deleted:
        echo(f"{day.cell}  {day.day}  {counted(day.n_files, 'file')}, {day.n_bytes:,} bytes")
        n_files, n_bytes, n_days = n_files + day.n_files, n_bytes + day.n_bytes, n_days + 1
    echo(f"{counted(n_files, 'file')} of {counted(n_days, 'day')} deleted, {n_bytes:,} bytes.")


def is_lake(db: str | None) -> bool:
    """Return whether a `--db` names a lake."""
    return db is not None and db.startswith(PREFIX)


@contextmanager
def session(db: str, hours: int, moment: AsOf, engine: str) -> Iterator[LakeSession]:
    """Open a lake over the last `hours` hours of the clock."""
    from pertoken.lake.questions import LakeSession
    from pertoken.lake.reading import Range

    end_ts = -(-moment.ts // 3600) * 3600
    with LakeSession(db.removeprefix(PREFIX), Range(first_hour(hours, moment.ts), end_ts), engine) as opened:
        yield opened


def print_costs(db: str, by: str | None, hours: int, moment: AsOf, engine: str, *, as_json: bool, as_csv: bool) -> None:
    """Print `pertoken costs` over a lake."""
    from pertoken.text.lake import lake_text

    with Progress(f"Reading {hours} hours of {db}"), session(db, hours, moment, engine) as opened:
        answers = cost_tables(opened, by)
        coverage = opened.coverage
    for fault in coverage.faults:
        echo(f"pertoken: left out: {fault}", err=True)
    if as_json:
        return echo_json({"tables": {answer.title: answer.rows for answer in answers}, **coverage.values()})
    if as_csv:
        rows = answers[0].rows
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        return writer.writerows(rows)
    echo(lake_text(f"{db}, {counted(hours, 'hour')}", answers, coverage, text_width()), nl=False)


def cost_tables(opened: LakeSession, by: str | None) -> list[LakeTable]:
    """Return the answers of `pertoken costs` over a lake."""
    from pertoken.lake import questions
    from pertoken.text.lake import LakeTable, with_per_mtok

    if by in ("hour", "day"):
        keys = ("day", "hour") if by == "hour" else ("day",)
        rows = opened.rows(partial(questions.dollars, by=keys))
        tables = [LakeTable(f"Dollars by {by}", sorted(rows, key=lambda row: tuple(row[key] for key in keys)))]
        if by == "hour":
            rows = opened.rows(partial(questions.per_mtok, by="model", hourly=True))
            tables.append(LakeTable("Dollars per Mtok by model and hour", [with_per_mtok(row) for row in rows]))
        return tables
    by = by or "model"
    tables = [LakeTable(f"Dollars by {by}", _named(opened.rows(partial(questions.dollars, by=[by])), by))]
    if by in TOKENS_BY or is_basis(by):
        named = _named(opened.rows(partial(questions.per_mtok, by=by)), by)
        tables.insert(0, LakeTable(f"Dollars per Mtok by {by}", [with_per_mtok(row) for row in named]))
    return tables


def _named(rows: Sequence[Mapping[str, object]], by: str) -> list[dict[str, object]]:
    """Return rows with the owner under the name of its basis."""
    return [{by if key == "owner" else key: value for key, value in row.items()} for row in rows]


def views(opened: LakeSession, budget_usd: float | None = None) -> list[LakeTable]:
    """Return all tables of a lake."""
    from pertoken.lake.questions import VIEWS
    from pertoken.text.lake import LakeTable, with_kind_prices, with_per_mtok

    tables = []
    for name, view in VIEWS.items():
        rows: Sequence[Mapping[str, object]] = opened.rows(view.question)
        if name in ("mtok", "kinds"):
            rows = [(with_per_mtok if name == "mtok" else with_kind_prices)(row) for row in rows]
        note = view.note
        if name == "months" and budget_usd is not None:
            spent = max((str(row["month"]) for row in rows), default=None)
            amounts = [row["nano_usd"] for row in rows if row["month"] == spent]
            total = sum(amount for amount in amounts if isinstance(amount, int)) / NANO_USD
            bound = "at least " if None in amounts else ""  # a cell without any price
            note = f"{spent}: {bound}${total:,.0f} of a budget of ${budget_usd:,.0f} ({total / budget_usd:.0%})"
        tables.append(LakeTable(view.title, rows, note))
    return tables


def show_lake(db: str, moment: AsOf, engine: str, budget_usd: float | None, *, once: bool, as_json: bool) -> None:
    """Show all tables of a lake over the last `SHOWN_DAYS` days: on a terminal as screens, else as text or JSON."""
    from pertoken.text.lake import lake_text

    def read() -> tuple[list[LakeTable], Coverage]:
        with session(db, 24 * SHOWN_DAYS, moment, engine) as opened:
            return views(opened, budget_usd), opened.coverage

    if not once and sys.stdout.isatty():
        from pertoken.tui.lake_app import LakeApp

        return LakeApp(db, read).run()
    with Progress(f"Reading {SHOWN_DAYS} days of {db}"):
        tables, coverage = read()
    if as_json:
        return echo_json({"tables": {table.title: table.rows for table in tables}, **coverage.values()})
    echo(lake_text(f"{db}, {SHOWN_DAYS} days", tables, coverage, text_width()), nl=False)


def _day(option: str, text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{option} {text}: is no day; write it as 2026-11-28") from None
