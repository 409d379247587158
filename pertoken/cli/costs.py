"""`pertoken costs`: the price of a million tokens, by model or service and hour, or by host."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from pertoken.cli import lake
from pertoken.cli.options import (
    AsOf,
    Database,
    GroupingType,
    Progress,
    at_option,
    db_option,
    echo,
    echo_json,
    engine_option,
    fail_on_option,
    json_option,
    judged,
    leave,
    report_faults,
    settings_of,
    terminal_width,
    text_width,
)
from pertoken.printable import csv_cell
from pertoken.settings.owners import BASES, is_basis
from pertoken.units import NANO_USD, first_hour

if TYPE_CHECKING:
    from pertoken.cli.options import AsOf
    from pertoken.config import Settings
    from pertoken.costs.hours import HostCost, ModelHours
    from pertoken.settings.alerts import FigureLimit
    from pertoken.store.connect.open import Store


BILL_BY = ("tenant", "team", "model", "gpu", *BASES)
"""Keys that can group the lines of a bill, beside `label:NAME`."""
LAKE_ONLY = tuple(name for name in lake.BY if name not in (*BILL_BY, "host", "service"))


@click.command(short_help="Print what a million tokens cost, by model, tenant, host or GPU.")
@click.option(
    "--hours", "n", type=click.IntRange(1, 8760), default=24, show_default=True, help="Hours up to now, or up to --at."
)
@click.option(
    "--by",
    type=GroupingType(list(dict.fromkeys([*BILL_BY, "host", "service", *lake.BY]))),
    help="Group by this, or by label:NAME of pods, instead of by model and hour.",
)
@click.option(
    "--figures",
    is_flag=True,
    help="Print goodput, tokens per dollar, requests, energy and idle dollars by model, over all these hours.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of text.")
@engine_option
@fail_on_option
@at_option
@json_option
@db_option
def costs(
    database: Database,
    n: int,
    by: str | None,
    figures: bool,
    as_csv: bool,
    fail_on: tuple[FigureLimit, ...],
    as_json: bool,
    moment: AsOf,
    engine: str | None,
) -> None:
    """Print what a million tokens of each model cost, for each hour of the clock (UTC) including the current one.

    The cost is all dollars of the devices allocated to the model, busy or idle, divided by its prompt tokens (cached
    ones included) plus generated tokens; beside it is the share of its time that was observed. An hour without a price
    or without tokens has no cost; an hour without recorded rows is left out. Dollars are marked as estimated where the
    price changed within an hour whose minutes were deleted: they are then divided by time.

    With --by tenant, team, model, gpu or an owner the lines cover all the hours together and sum to the bill of all
    priced devices. Owners of a deployment are the namespace, workload and labels (label:NAME) of the Kubernetes pod it
    ran in, its Slurm job with user, account and partition, and its systemd slice; where none is known it has no owner.
    Tenants and teams come from gateways (docs/gateways.md); tokens that no gateway saw are
    unattributed. Other programs on a device, and time in which a device was not allocated, are lines of their own.
    --by host prints the dollars of all devices of each host and the tokens of its engines. --by service prints hours,
    and adds up the models of each [services] table of the settings.

    --figures prints a line for each model over all the hours: dollars per Mtok of requests within the SLO, tokens per
    dollar, dollars per 1,000 requests, joules per token and idle dollars; an unknown figure is given with its reason.
    Models that embed or rank are counted by their prompt tokens.

    With --at the hours end at that time, have the prices that were in force, and leave out everything recorded later:
    the same database always gives the same output.

    With --db lake:URL the hours of all databases of a lake are read (docs/lake.md), exactly to the nano-dollar in JSON.

    Each --fail-on is a gate over these hours: exit 0 if none is true, 1 if one is, 3 if one cannot be measured. The
    JSON is then an object with `lines` and `gates`.
    """
    if lake.is_lake(database.db):
        if figures or fail_on or (by is not None and by not in lake.BY and not is_basis(by)):
            raise click.UsageError(
                f"a lake is grouped by {', '.join(lake.BY)} and other owners, without --figures and --fail-on"
            )
        settings_of(database.config_file)
        return lake.print_costs(str(database.db), by, n, moment, engine or lake.DUCKDB, as_json=as_json, as_csv=as_csv)
    if engine is not None or by in LAKE_ONLY:
        raise click.UsageError(f"--engine, and --by {', '.join(LAKE_ONLY)}, are for a lake: --db lake:URL")
    if figures and as_csv:
        raise click.UsageError("--figures has no CSV: use --json")
    if figures and by is not None:
        raise click.UsageError("--figures already prints a line for each model: leave --by out")
    settings, store = database.opened(moment)
    seconds = moment.ts - first_hour(n, moment.ts)
    report_faults(moment, store, seconds)
    if figures:
        if fail_on:
            raise click.UsageError("--figures takes no gates: leave it out with --fail-on")
        return print_figures(store, settings, n, moment, as_json)
    with Progress(f"Reading {n} hours"):
        lines, columns, text = _read(store, settings, by, n, moment)
    gates = judged(fail_on, store, settings, seconds, moment)
    if as_json:
        echo_json({"lines": lines, "gates": [gate.values() for gate in gates]} if fail_on else lines)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: csv_cell(v) if isinstance(v, str) else v for k, v in line.items()} for line in lines)
    else:
        echo(text(text_width()), nl=False)
    leave(gates)


_Lines = tuple[list[dict[str, object]], Sequence[str], Callable[[int | None], str]]
"""Lines as JSON values, the names of their columns, and a function from a width to the same lines as text."""


def _read(store: Store, settings: Settings, by: str | None, hours: int, moment: AsOf) -> _Lines:
    if by is not None and (by in BILL_BY or is_basis(by)):
        from pertoken.costs.spend import spend, with_shared
        from pertoken.reports.tables import bill_values
        from pertoken.text.costs import spend_summary

        teams = {tenant.name: tenant.team for tenant in settings.tenants}
        bill = with_shared(spend(store, by, hours, moment.ts, teams, dated=moment.dated), settings.shared)
        return list(bill_values(bill)), _BILL_COLUMNS, partial(spend_summary, bill)
    from pertoken.text.summary import hosts_summary, hours_summary

    if by == "host":
        from pertoken.costs.hours import host_costs

        hosts = host_costs(store, hours, moment.ts, dated=moment.dated)
        return list(_host_lines(hosts)), _HOST_COLUMNS, partial(hosts_summary, hosts, hours)
    from pertoken.costs.fleet import service_name
    from pertoken.costs.hours import hourly

    what = by or "model"
    named = partial(service_name, settings=settings) if by == "service" else str
    report = hourly(store, hours, moment.ts, dated=moment.dated, named=named)
    return list(hour_lines(report, what)), (what, *_HOUR_COLUMNS), partial(hours_summary, report, by=what)


_HOUR_COLUMNS = ("hour", "usd", "tokens", "usd_per_mtok", "observed", "estimated")
_HOST_COLUMNS = ("host", "devices", "unpriced_devices", "usd", "tokens", "usd_per_mtok")
_BILL_COLUMNS = (
    *("by", "name", "team", "key", "user", "usd", "tokens", "usd_per_mtok"),
    *("cached_tokens", "generated_tokens", "reasoning_tokens", "audio_tokens", "images", "video_s", "weighted"),
    "usd_with_shared",
)


def _host_lines(hosts: Sequence[HostCost]) -> Iterator[dict[str, object]]:
    for host in hosts:
        price = host.nano_usd_per_mtok
        yield {
            "host": host.name,
            "devices": host.devices,
            "unpriced_devices": host.unpriced_devices,
            "usd": None if host.nano_usd is None else host.nano_usd / NANO_USD,
            "tokens": host.tokens,
            "usd_per_mtok": None if price is None else price / NANO_USD,
        }


def hour_lines(models: Sequence[ModelHours], by: str) -> Iterator[dict[str, object]]:
    """Yield a line for each model or service and hour; an unknown value is None."""
    for model in models:
        for i, hour in enumerate(model.hours):
            if hour is not None and hour.recorded:
                price = hour.nano_usd_per_mtok
                yield {
                    by: model.model,
                    "hour": datetime.fromtimestamp(model.start_ts + 3600 * i, UTC).strftime("%Y-%m-%dT%H:%MZ"),
                    "usd": None if hour.nano_usd is None else hour.nano_usd / NANO_USD,
                    "tokens": hour.tokens,
                    "usd_per_mtok": None if price is None else price / NANO_USD,
                    "observed": None if hour.observed is None else int(hour.observed * 10_000) / 10_000,
                    "estimated": hour.estimated,
                }


def print_figures(store: Store, settings: Settings, hours: int, moment: AsOf, as_json: bool) -> None:
    """Print the figures of every model over some hours of the clock. Raises StoreError."""
    from pertoken.costs.fleet import objectives
    from pertoken.costs.report.figures import EnergyTerms, figures_of, plain
    from pertoken.text.billing import figures_text

    with Progress(f"Reading {hours} hours"):
        slo_of, terms = partial(objectives, settings=settings), EnergyTerms.of(settings)
        rows = figures_of(store, hours, moment.ts, slo_of, dated=moment.dated, terms=terms)
    if as_json:
        echo_json([plain(row, terms) for row in rows])
    else:
        echo(figures_text(rows, terminal_width(), terms), nl=False)
