"""`pertoken export`: rows of a table to a file."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, Progress, db_option, echo, write_file
from pertoken.errors import BadInput, StoreError
from pertoken.units import parse_time

if TYPE_CHECKING:
    pass


@click.command(short_help="Write rows to a Parquet or CSV file, or measured prices for LiteLLM or Langfuse.")
@click.argument("form", metavar="parquet|csv|litellm|langfuse")
@click.option("--table", metavar="TABLE", help="Which table; `pertoken db info` lists them.")
@click.option("--from", "start", metavar="TIME", help="Only rows from this time on: 2026-11-21T10:00Z, or 24h (ago).")
@click.option("--to", "end", metavar="TIME", help="Only rows before this time.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write [default: csv to stdout].")
@db_option
def export(
    database: Database, form: str, table: str | None, start: str | None, end: str | None, out: Path | None
) -> None:
    """Write rows of one table to a Parquet or CSV file, as they are stored.

    Rows are read and written in batches, so that memory does not grow with their number. Parquet needs the
    extra `parquet`. `pertoken import` reads both back.

    With litellm or langfuse: write the measured price of a token of each model over the last seven days, as the price
    map of that tool (docs/exporters.md). Models without a known price are left out, and listed.
    """
    from pertoken.store.export.files import FORMATS, ExportRange, columns, count, csv_out, parquet_out, slices

    if form in ("litellm", "langfuse"):
        if table is not None or start is not None or end is not None:
            raise BadInput(f"{form} covers all models over the last seven days: leave --table, --from and --to out")

        return export_prices(database, form, out)
    if form not in FORMATS:
        raise BadInput(f"{form!r} is not a format: choose parquet, csv, litellm or langfuse")
    if table is None:
        raise BadInput("name a table: --table TABLE; `pertoken db info` lists them")
    columns(table)
    window = ExportRange(_time(start), _time(end))
    if form == "parquet" and out is None:
        raise BadInput("a Parquet file needs a name: --out FILE")
    _, store = database.opened()
    with Progress(f"Counting rows of {table}"):
        n = count(store, table, window)
    try:
        with contextlib.ExitStack() as stack:
            if form == "parquet" and out is not None:
                put = stack.enter_context(parquet_out(out, table))
            else:
                file = sys.stdout if out is None else stack.enter_context(out.open("w", encoding="utf-8", newline=""))
                put = stack.enter_context(csv_out(file, table))
            progress = stack.enter_context(Progress(f"Exporting {table}", n))
            written = 0
            for rows in slices(store, table, window):
                put(rows)
                written += len(rows)
                progress.advance(len(rows))
    except OSError as error:
        raise StoreError(f"{out or 'stdout'}: cannot be written: {error.strerror}") from None
    echo(f"{out or 'stdout'}: {written:,} rows of {table}.", err=True)


def _time(text: str | None) -> int | None:
    try:
        return None if text is None else parse_time(text, time.time())
    except ValueError as error:
        raise BadInput(str(error)) from None


HOURS = 24 * 7


def export_prices(database: Database, kind: str, out: Path | None) -> None:
    """Write the price map of a tool: the measured price of each model over the last seven days. Raises StoreError."""
    from pertoken.costs.fleet import objectives
    from pertoken.costs.report.figures import figures_of
    from pertoken.reports.exporters import price_map, unknown

    now_ts = int(time.time())
    settings, store = database.opened()
    with Progress("Reading seven days"):
        figures = figures_of(store, HOURS, now_ts, partial(objectives, settings=settings))
    as_of = datetime.fromtimestamp(now_ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps(price_map(kind, figures, as_of), indent=2) + "\n"
    for line in unknown(figures):
        echo(f"left out: {line}", err=True)
    if out is None:
        echo(text, nl=False)
        return
    write_file(out, text)
