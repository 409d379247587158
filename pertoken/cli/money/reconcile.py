"""`pertoken reconcile`: the bill of a cloud, compared with the computed costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, Progress, confirm, db_option, echo, echo_json, json_option
from pertoken.errors import BadInput
from pertoken.units import format_usd, format_utc

if TYPE_CHECKING:
    from pertoken.costs.prices.book import Price, PriceBook
    from pertoken.store.connect.location import StoreLocation


@click.command(short_help="Compare a cloud's bill with the computed costs.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--apply", is_flag=True, help="Use the billed prices, after showing what they change.")
@click.option("--yes", is_flag=True, help="With --apply: change the cost of past hours without being asked.")
@json_option
@db_option
def reconcile(database: Database, files: tuple[Path, ...], apply: bool, yes: bool, as_json: bool) -> None:
    """Compare the bill in FILE with the computed costs, by instance and day, and name every difference.

    FILE is an export with a line for each resource: AWS CUR 2.0, Google Cloud detailed usage cost, Azure cost details,
    or FOCUS, as CSV, JSON (a list, or an object on each line), both also gzipped, or Parquet (needs pertoken[parquet]).
    If a bill comes in several files, pass all of them, or their folder (its CSV and Parquet files are read).

    A line belongs to the host with that name, or with that `resource_id` in [hosts."NAME"]. All lines sum to the bill:
    lines of no recorded host are listed by kind.

    With --apply the billed price of each device is stored from the first day of the bill on. It takes precedence over
    all other prices until the next bill. The cost of past hours changes; the change is shown first.
    """
    from pertoken.costs.invoice.read import read_bill
    from pertoken.costs.invoice.reconcile import compared
    from pertoken.store.connect.open import open_store
    from pertoken.text.billing import invoice_plain, invoice_text

    if apply and as_json:
        raise click.UsageError("--apply asks for confirmation: leave --json out")
    settings, where = database.located()
    with Progress("Reading the bill") as bar:
        invoice = read_bill(files, bar.advance)
    stated = {host.name: host.resource_id for host in settings.hosts if host.resource_id is not None}
    now_ts = int(time.time())
    with Progress("Reading computed costs"):
        comparison = compared(open_store(where), invoice, stated, now_ts)
    if as_json:
        echo_json(invoice_plain(comparison, invoice))
        return
    echo(invoice_text(comparison, invoice), nl=False)
    if apply:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        prices = comparison.prices(f"{invoice.format.name} {files[0].name}{more}", now_ts)
        if not prices:
            raise BadInput(
                "no line of the bill has hours of a recorded host that are paid by the hour: there is no price to store"
            )
        stored = _store(where, prices, now_ts, yes)
        done = f"Stored {stored} billed prices." if stored else "The prices of this bill are stored already."
        echo(f"{done} `pertoken prices show` lists them.")


def _store(where: StoreLocation, prices: Sequence[Price], now_ts: int, yes: bool) -> int:
    """Show the past costs that the prices change, ask, and store the new prices; return their number.

    Raises BadInput without a terminal to ask at.
    """
    from pertoken.costs.prices.book import PriceBook
    from pertoken.costs.repricing import read_prices, repriced
    from pertoken.migrations import upgrade
    from pertoken.store import repository

    upgrade(where, "advice")
    stored_prices = read_prices(where, now_ts)
    prices = [price for price in prices if not _is_stored(price, stored_prices.book)]
    if not prices:
        return 0
    numbered = [replace(price, seq=seq) for seq, price in enumerate(prices, stored_prices.seq + 1)]
    after = PriceBook((*stored_prices.book.prices, *numbered), stored_prices.book.detected)
    with Progress("Pricing past hours again"):
        changes = repriced(where, stored_prices.book, after, min(price.from_ts for price in prices), now_ts)
    for change in changes:
        echo(
            f"Cost of {len(change.devices)} x {change.name} from {format_utc(change.first_ts)} to "
            f"{format_utc(change.last_ts)}: {format_usd(change.before, 'no price')} → "
            f"{format_usd(change.after, 'no price')}"
        )
    if changes and not yes:
        confirm(
            "Use the billed prices?",
            "the cost of past hours would change, as shown: nothing was stored; pass --yes to do it",
            "nothing was stored",
        )
    with repository.AdviceRepository(where).writing() as connection:
        for read_seq, price in enumerate(prices, stored_prices.seq):
            repository.add_price(
                connection,
                read_seq=read_seq,
                selector=price.selector,
                nano_usd_per_device_hour=price.nano_usd_per_device_hour,
                from_ts=price.from_ts,
                set_ts=price.set_ts,
                set_by=price.set_by,
                note=price.note,
            )
    return len(prices)


def _is_stored(price: Price, book: PriceBook) -> bool:
    """Return whether this is the newest stored price of its device from its start on."""
    same = [stored for stored in book.of_selector(price.selector) if stored.from_ts == price.from_ts]
    return bool(same) and (same[-1].nano_usd_per_device_hour, same[-1].set_by) == (
        price.nano_usd_per_device_hour,
        price.set_by,
    )
