"""`pertoken costs`: what a million tokens cost, by model or service and hour, or by host."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pertoken.cli.options import (
    as_of,
    at_option,
    check_recorded,
    db_option,
    echo,
    echo_json,
    json_option,
    settings_of,
    text_width,
)
from pertoken.cli.reporting.gates import fail_on_option, judged, leave
from pertoken.printable import csv_cell
from pertoken.units import NANO_USD, first_hour

if TYPE_CHECKING:
    from pertoken.cli.options import AsOf
    from pertoken.config import Settings
    from pertoken.costs.hosts import HostCost
    from pertoken.costs.hours.hour import ModelHours
    from pertoken.settings.expression import Comparison
    from pertoken.store.connect.open import Store

BILL_BY = ("tenant", "team", "model", "gpu")
"""What the lines of one bill may be of."""


@click.command(short_help="Print what a million tokens cost, by model, tenant, host or GPU.")
@click.option(
    "--hours", "n", type=click.IntRange(1, 8760), default=24, show_default=True, help="How many, to now or --at."
)
@click.option(
    "--by",
    type=click.Choice([*BILL_BY, "host", "service"]),
    help="What a line is, instead of a model and hour.",
)
@click.option(
    "--figures",
    is_flag=True,
    help="Print, of all these hours, goodput, tokens per dollar, requests, energy and idle dollars by model.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of text.")
@fail_on_option
@at_option
@json_option
@db_option
def costs(
    config_file: str | None,
    db: str | None,
    n: int,
    by: str | None,
    figures: bool,
    as_csv: bool,
    fail_on: tuple[Comparison, ...],
    as_json: bool,
    at: str | None,
) -> None:
    """Print what a million tokens cost each model, over hours of the clock (UTC), the one under way included.

    All dollars of the devices that a model held, busy or idle, by its prompt (cached included) and generated tokens,
    with the share of its time that was observed. An hour without a price or without tokens has none; an hour in which
    nothing was recorded is left out. Estimated dollars were divided by time at a change of price, since the minutes of
    the hour were deleted.

    With --by tenant, team, model or gpu the lines are of all the hours together and sum to the bill of all priced
    devices. Tenants and teams are known by gateways (docs/gateways.md); what none of them saw is unattributed. Foreign
    work, and time in which nothing held a device, are lines of their own. --by host prints the dollars of all devices
    of each host, whoever held them, and the tokens of the engines on it. --by service prints hours, with the models
    added up that a [services] table of the settings names.

    With --figures a line for each model, over all the hours: dollars per Mtok of requests inside the SLO, tokens per
    dollar, dollars per 1,000 requests, joules per token and idle dollars, each unknown with its reason. Models that
    embed or rank are counted by their prompt tokens.

    With --at the hours end there, at the prices in force in them, and nothing recorded later counts: the same database
    gives the same output at any time.

    Each --fail-on is a gate over these hours: exit 0 if none is true, 1 if one is, 3 if one cannot be measured. JSON
    then is an object with `lines` and `gates`.
    """
    from pertoken.cli.progress import Progress
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    if figures and as_csv:
        raise click.UsageError("--figures has no CSV: use --json")
    if figures and by is not None:
        raise click.UsageError("--figures is a line for each model: leave --by out")
    settings = settings_of(config_file, db=db)
    moment = as_of(at)
    store = open_store(locate(settings.db, settings.advice))
    check_recorded(moment, store)
    if figures:
        from pertoken.cli.money.figures import print_figures

        if fail_on:
            raise click.UsageError("--figures takes no gates: leave it out with --fail-on")
        return print_figures(store, settings, n, moment, as_json)
    with Progress(f"Reading {n} hours"):
        lines, columns, text = _read(store, settings, by, n, moment)
    seconds = moment.ts - first_hour(n, moment.ts)
    gates = judged(fail_on, store, settings, seconds, moment)
    if as_json:
        echo_json({"lines": lines, "gates": [each.values() for each in gates]} if fail_on else lines)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: csv_cell(v) if isinstance(v, str) else v for k, v in line.items()} for line in lines)
    else:
        echo(text(text_width()), nl=False)
    leave(gates)


_Lines = tuple[list[dict[str, Any]], Sequence[str], Callable[[int | None], str]]
"""Lines as plain values, the names of their columns, and the same as text of some width."""


def _read(store: Store, settings: Settings, by: str | None, hours: int, moment: AsOf) -> _Lines:
    """Read costs by hour, by host, or as one bill."""
    if by is not None and by in BILL_BY:
        from pertoken.costs.hours.spend import spend
        from pertoken.reports.values import bill_values
        from pertoken.tui.text.spend import spend_summary

        teams = {each.name: each.team for each in settings.tenants}
        bill = spend(store, by, hours, moment.ts, teams, dated=moment.dated)
        return list(bill_values(bill)), _BILL_COLUMNS, partial(spend_summary, bill)
    from pertoken.tui.text.summary import hosts_summary, hours_summary

    if by == "host":
        from pertoken.costs.hosts import host_costs

        hosts = host_costs(store, hours, moment.ts, dated=moment.dated)
        return list(_host_lines(hosts)), _HOST_COLUMNS, partial(hosts_summary, hosts, hours)
    from pertoken.costs.fleet import service_name
    from pertoken.costs.hours.hourly import hourly

    what = by or "model"
    named = partial(service_name, settings=settings) if by == "service" else str
    found = hourly(store, hours, moment.ts, dated=moment.dated, named=named)
    return list(hour_lines(found, what)), (what, *_HOUR_COLUMNS), partial(hours_summary, found, by=what)


_HOUR_COLUMNS = ("hour", "usd", "tokens", "usd_per_mtok", "observed", "estimated")
_HOST_COLUMNS = ("host", "devices", "unpriced_devices", "usd", "tokens", "usd_per_mtok")
_BILL_COLUMNS = ("by", "name", "team", "key", "user", "usd", "tokens", "usd_per_mtok")


def _host_lines(found: Sequence[HostCost]) -> Iterator[dict[str, Any]]:
    """Yield one for each host; what is not known is None."""
    for each in found:
        price = each.nano_usd_per_mtok
        yield {
            "host": each.name,
            "devices": each.devices,
            "unpriced_devices": each.unpriced_devices,
            "usd": None if each.nano_usd is None else each.nano_usd / NANO_USD,
            "tokens": each.tokens,
            "usd_per_mtok": None if price is None else price / NANO_USD,
        }


def hour_lines(found: Sequence[ModelHours], by: str) -> Iterator[dict[str, Any]]:
    """Yield one for each model or service and hour; what is not known is None."""
    for each in found:
        for i, hour in enumerate(each.hours):
            if hour is not None and hour.recorded:
                price = hour.nano_usd_per_mtok
                yield {
                    by: each.model,
                    "hour": datetime.fromtimestamp(each.start_ts + 3600 * i, UTC).strftime("%Y-%m-%dT%H:%MZ"),
                    "usd": None if hour.nano_usd is None else hour.nano_usd / NANO_USD,
                    "tokens": hour.tokens,
                    "usd_per_mtok": None if price is None else price / NANO_USD,
                    "observed": None if hour.observed is None else int(hour.observed * 10_000) / 10_000,
                    "estimated": hour.estimated,
                }
