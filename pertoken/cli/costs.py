"""`pertoken costs`: what a million tokens cost, by model and hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from pertoken.cli.options import (
    as_of,
    at_option,
    check_recorded,
    db_option,
    echo,
    json_option,
    settings_of,
    text_width,
)

if TYPE_CHECKING:
    from pertoken.costs.hours.hour import ModelHours


@click.command(short_help="Say what a million tokens cost, by model and hour.")
@click.option(
    "--hours", "n", type=click.IntRange(1, 8760), default=24, show_default=True, help="How many, to now or --at."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of text: a line for each model and hour.")
@at_option
@json_option
@db_option
def costs(config_file: str | None, db: str | None, n: int, as_csv: bool, as_json: bool, at: str | None) -> None:
    """Say what a million tokens cost each model, over hours of the clock (UTC), the one under way included.

    All dollars of the devices that a model held, busy or idle, by its prompt (cached included) and generated tokens,
    with the share of its time that was observed. An hour without a price or without tokens has none; an hour in which
    nothing was recorded is left out. Estimated dollars were divided by time at a change of price, since the minutes of
    the hour were deleted.

    With --at the hours end there, at the prices in force in them, and nothing recorded later counts: the same database
    gives the same output at any time.
    """
    import csv
    import json
    import sys

    from pertoken.cli.progress import Progress
    from pertoken.costs.hours.hourly import hourly
    from pertoken.printable import csv_cell
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    settings = settings_of(config_file, db=db)
    moment = as_of(at)
    store = open_store(locate(settings.db, settings.advice))
    check_recorded(moment, store)
    with Progress(f"Reading {n} hours"):
        found = hourly(store, n, moment.ts, dated=moment.dated)

    if as_json:
        echo(json.dumps(list(_lines(found)), indent=2))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**line, "model": csv_cell(line["model"])} for line in _lines(found))
    else:
        from pertoken.tui.text.summary import hours_summary

        echo(hours_summary(found, text_width()), nl=False)


_COLUMNS = ("model", "hour", "usd", "tokens", "usd_per_mtok", "observed", "estimated")


def _lines(found: Sequence[ModelHours]) -> Iterator[dict[str, Any]]:
    """One for each model and hour; what is not known is None."""
    from datetime import UTC, datetime

    from pertoken.units import NANO_USD

    for each in found:
        for i, hour in enumerate(each.hours):
            if hour is not None and hour.recorded:
                price = hour.nano_usd_per_mtok
                yield {
                    "model": each.model,
                    "hour": datetime.fromtimestamp(each.start_ts + 3600 * i, UTC).strftime("%Y-%m-%dT%H:%MZ"),
                    "usd": None if hour.nano_usd is None else hour.nano_usd / NANO_USD,
                    "tokens": hour.tokens,
                    "usd_per_mtok": None if price is None else price / NANO_USD,
                    "observed": None if hour.observed is None else int(hour.observed * 10_000) / 10_000,
                    "estimated": hour.estimated,
                }
