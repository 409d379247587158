"""`pertoken prices`: what a device-hour costs, effective-dated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, json_option, settings_of

if TYPE_CHECKING:
    from pertoken.costs.prices import Price
    from pertoken.store.open import Store


@click.group(short_help="Set and show what a device-hour costs.")
def prices() -> None:
    """Set and show what a device-hour costs you. A new price never changes past costs."""


@prices.command("set", short_help="Set the price of a device-hour.", context_settings={"ignore_unknown_options": True})
@click.argument("dollars", metavar="DOLLARS")
@click.option(
    "--for",
    "selector",
    metavar="DEVICE",
    required=True,
    help="`cpu` (a host's CPUs together), `gpu` (every GPU), part of a GPU's name such as H100, or a device's UUID.",
)
@click.option(
    "--from",
    "start",
    metavar="WHEN",
    help="From when on: `ever`, `now`, or a time such as 2026-11-01 or 2026-11-01T08:00 (UTC) "
    "[default: ever if it is the first price for DEVICE, else now].",
)
@click.option("--note", help="Where the price comes from, for whoever reads it later.")
@db_option
def set_price(
    config_file: str | None, db: str | None, dollars: str, selector: str, start: str | None, note: str | None
) -> None:
    """Set what one hour of one device costs, in DOLLARS (an 8-GPU instance at $55.04 is 6.88 for each GPU).

    The most exact DEVICE wins where several apply.
    """
    import getpass
    import time

    from pertoken.migrations import upgrade
    from pertoken.store import book
    from pertoken.store.book import Book
    from pertoken.store.place import place
    from pertoken.units import format_usd

    nano = _nano(dollars)
    settings = settings_of(config_file, db=db)
    where = place(settings.db, settings.advice)
    upgrade(where, "advice")
    with Book(where).writing() as connection:
        first = all(row.selector != selector for row in book.prices(connection))
        now = int(time.time())
        from_ts = _start(start or ("ever" if first else "now"), now)
        book.add_price(
            connection,
            selector=selector.strip(),
            nano_usd_per_device_hour=nano,
            from_ts=from_ts,
            set_ts=now,
            set_by=getpass.getuser(),
            note=note,
        )
    since = "all that was recorded" if from_ts == 0 else f"{_when(from_ts)} on"
    click.echo(f"{selector}: {format_usd(nano)} an hour, for {since}.")
    _say_matches(where, selector)


@prices.command("show", short_help="Show every price ever set.")
@db_option
@json_option
def show_prices(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show every price ever set, oldest first, and list prices of devices of a detected instance without one."""
    import json
    from dataclasses import asdict

    from pertoken.costs.report import prices_set
    from pertoken.store.open import Store, open_advice, reading
    from pertoken.store.place import place
    from pertoken.units import format_usd

    settings = settings_of(config_file, db=db)
    where = place(settings.db, settings.advice)
    store = Store(where, reading(where, "telemetry"), open_advice(where))
    found = [*sorted(prices_set(store), key=lambda each: (each.from_ts, each.set_ts)), *_listed(store)]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    if not found:
        click.echo("No price was set yet. `pertoken prices set DOLLARS --for DEVICE` sets one.")
    for each in found:
        since = f"where none is set, {_from(each)}" if each.listed else _from(each)
        by = f"  ({each.note})" if each.listed else _by(each)
        click.echo(f"{since:22} {format_usd(each.nano_usd_per_device_hour):>10} / h  {each.selector}{by}")


def _listed(store: Store) -> list[Price]:
    """List prices of recorded devices; none where nothing was recorded."""
    import time

    from pertoken.costs.report import price_book
    from pertoken.errors import StoreError
    from pertoken.store.open import open_store

    try:
        detected = price_book(open_store(store.place), int(time.time())).detected
    except StoreError:
        return []
    return [price for prices in detected.values() for price in prices]


def _from(price: Price) -> str:
    return "since ever" if price.from_ts == 0 else f"from {_when(price.from_ts)}"


def _by(price: Price) -> str:
    note = f": {price.note}" if price.note else ""
    return f"  (set {_when(price.set_ts)} by {price.set_by}{note})"


def _when(ts: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%MZ")


def _nano(dollars: str) -> int:
    from decimal import Decimal, InvalidOperation

    from pertoken.errors import BadInput
    from pertoken.units import NANO_USD

    try:
        value = Decimal(dollars.strip().lstrip("$"))
    except InvalidOperation:
        raise BadInput(f"{dollars!r} is not a price: write dollars like 2.50") from None
    if not value.is_finite() or value < 0 or value > 1_000_000:
        raise BadInput(f"{dollars}: a device-hour costs between 0 and 1,000,000 dollars")
    return int((value * NANO_USD).to_integral_value())


def _start(text: str, now: int) -> int:
    from datetime import UTC, datetime

    from pertoken.errors import BadInput

    if text == "ever":
        return 0
    if text == "now":
        return now // 60 * 60
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--from {text!r}: write `ever`, `now`, or a time like 2026-11-01T08:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 60 * 60


def _say_matches(where: object, selector: str) -> None:
    """Say which recorded devices the selector means, so that a typo is seen at once."""
    from pertoken.costs.prices import Price, PriceBook, Priced
    from pertoken.errors import StoreError
    from pertoken.store import read
    from pertoken.store.open import open_store
    from pertoken.store.place import Place

    if not isinstance(where, Place):
        return
    try:
        with open_store(where).read() as connection:
            rows = read.devices(connection, 0)
    except StoreError:
        click.echo("Nothing was recorded yet; it applies to what comes.")
        return
    book = PriceBook([Price(selector, 0, 0)])
    matched = [row.name for row in rows if row.parent_id is None and book.at(Priced(row.kind, row.name, row.uuid), 0)]
    if matched:
        names = ", ".join(f"{matched.count(name)} x {name}" for name in dict.fromkeys(matched))
        click.echo(f"It applies to {names}.")
    else:
        known = ", ".join(dict.fromkeys(row.name for row in rows)) or "none"
        click.echo(f"No recorded device matches {selector!r} yet; recorded: {known}.", err=True)
