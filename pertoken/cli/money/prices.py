"""`pertoken prices`: prices that people set, and list prices that they import."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING

import click

from pertoken.cli.money import price_lists
from pertoken.cli.money.price_lists import counted, end_ts, named, per_hour, period, price_store, provider_option, since
from pertoken.cli.options import Command, Database, Progress, confirm, db_option, echo
from pertoken.errors import BadInput
from pertoken.text.amounts import amount
from pertoken.units import format_utc

if TYPE_CHECKING:
    from pertoken.costs.prices.book import Entered, Price, PriceBook, PriceSubject
    from pertoken.costs.repricing import Prices
    from pertoken.store.connect.location import StoreLocation


_FROM = "`ever`, `now`, or a time such as 2026-11-01 or 2026-11-01T08:00 (UTC)"
_UNTIL = "the last day, such as 2026-12-31, or a time such as 2026-12-31T18:00 (UTC)"
_yes_option = click.option("--yes", is_flag=True, help="Change the cost of past hours without being asked.")


@click.group(short_help="Set and show what a device-hour costs.")
def prices() -> None:
    """Set and show what a device-hour costs you. A new price changes past costs only if you confirm it."""


@prices.command(
    "set",
    short_help="Set the price of a device-hour, or a discount on list prices.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("dollars", metavar="[DOLLARS]", required=False)
@click.option(
    "--for",
    "selector",
    metavar="DEVICE",
    help="`cpu` (a host's CPUs together), `gpu` (every GPU), words of a GPU's name such as H100 or \"H100 PCIe\", or a "
    "device's UUID.",
)
@click.option("--discount", metavar="PERCENT", help="Discount on all list prices of a --provider, such as 30%.")
@provider_option
@click.option(
    "--from",
    "start",
    metavar="WHEN",
    help=f"Start: {_FROM} [default: ever if no device of DEVICE has a price yet, else now; of a discount now].",
)
@click.option("--until", metavar="WHEN", help=f"End: {_UNTIL} [default: until another is set].")
@click.option("--currency", metavar="CODE", help="Currency of the amount, such as EUR; needs --rate.")
@click.option("--rate", metavar="DOLLARS", help="Dollars of one unit of the --currency, such as 1.08.")
@click.option("--rate-date", metavar="DATE", help="Day of the --rate [default: today].")
@click.option("--rate-source", metavar="TEXT", help="Source of the --rate [default: your user name].")
@click.option("--note", help="Source of the price, kept with it.")
@_yes_option
@db_option
def set_price(
    database: Database,
    dollars: str | None,
    selector: str | None,
    discount: str | None,
    provider: str | None,
    start: str | None,
    until: str | None,
    currency: str | None,
    rate: str | None,
    rate_date: str | None,
    rate_source: str | None,
    note: str | None,
    yes: bool,
) -> None:
    """Set what one hour of one device costs, in DOLLARS (an 8-GPU instance at $55.04 is 6.88 for each GPU).

    If several prices apply, that with the most exact DEVICE is used. Names match by whole words: H100 matches "NVIDIA
    H100 80GB HBM3", H10 does not. If the cost of past hours changes, old and new cost are shown, and you are asked.

    An amount in another --currency is kept as you entered it beside its dollars at your --rate. After --until the
    price before it applies again, as after `prices unset` where there was none.

    `--discount 30% --provider aws` takes 30 % off every list price of a provider, in costs and in advice, from its
    start to its end. It changes no price that you set and no billed price.
    """
    if dollars is not None and dollars.startswith("--"):  # an unknown option may stand for a negative number
        raise click.NoSuchOption(dollars)
    money = (currency, rate, rate_date, rate_source)
    if discount is not None:
        if provider is None or dollars is not None or selector is not None or any(word is not None for word in money):
            raise BadInput("a discount is set as `--discount 30% --provider aws`, without DOLLARS, --for or --currency")
        put_discount(database, provider, price_lists.millionths(discount), start, until, note, yes)
        return
    if provider is not None:
        raise BadInput("--provider belongs to --discount: name the devices with --for")
    if dollars is None or selector is None:
        raise BadInput("a price needs DOLLARS and --for DEVICE, such as `pertoken prices set 2.50 --for H100`")
    nano, entered = price_lists.entered_amount(dollars, *money, getpass.getuser())
    put(database, selector, start, note, nano, yes, until, entered)


@prices.command("unset", short_help="Withdraw the price of a device-hour, or a discount.")
@click.argument("selector", metavar="[DEVICE]", required=False)
@provider_option
@click.option("--from", "start", metavar="WHEN", default="now", show_default=True, help=f"Start: {_FROM}.")
@click.option("--note", help="Your reason, kept with it.")
@_yes_option
@db_option
def unset_price(
    database: Database, selector: str | None, provider: str | None, start: str, note: str | None, yes: bool
) -> None:
    """Withdraw the price of DEVICE, written as when it was set, or the discount of a --provider. Past costs and the
    history of prices do not change.

    From then on a less exact price applies, or the list price of the detected instance, or none.
    """
    if (selector is None) == (provider is None):
        raise BadInput("name the DEVICE whose price ends, or the --provider whose discount ends")
    if provider is not None:
        put_discount(database, provider, None, start, None, note, yes)
    else:
        put(database, selector or "", start, note, None, yes)


for _command in (
    price_lists.show_prices,
    price_lists.show_offers,
    price_lists.import_prices,
    price_lists.update_prices,
):
    prices.add_command(_command)


def _terms(command: Command) -> Command:
    """Add an option for each term of the cost of ownership; its help has the default and the usual range."""
    from pertoken.catalog.instances import terms

    for name, term in reversed(list(terms().items())):
        text = f"{term.meaning[0].upper()}{term.meaning[1:]} [default: {term.value:g}; usual: {term.usual}]."
        command = click.option(f"--{name.replace('_', '-')}", name, type=float, help=text)(command)
    return command


@prices.command("own", short_help="State the cost of a server that you own.")
@click.argument("host")
@click.option(
    "--capex", type=float, required=True, help="Dollars paid for the whole server, including its share of the network."
)
@click.option("--nameplate-kw", type=float, help="Power reserved for the server; without it colocation is not counted.")
@click.option(
    "--node-w", type=float, help="Mean power of the server, measured at its plug [default: modelled from its devices]."
)
@_terms
@db_option
def own_server(
    database: Database,
    host: str,
    capex: float,
    nameplate_kw: float | None,
    node_w: float | None,
    **stated: float | None,
) -> None:
    """State the cost of the server HOST, so that an hour of its devices has the price of owning it.

    That price is capital, maintenance, colocation and operations plus the energy of each week: the measured power of
    the devices with that of the rest of the server, by --node-w or a model (docs/prices.md), times PUE. It applies to
    devices without a price of `prices set`: from the beginning, or from now on if ownership of HOST was stated before.
    """
    from pertoken.costs.prices.stored import Ownership, ownership
    from pertoken.migrations import upgrade
    from pertoken.store import repository

    settings, where = database.located()
    if stated["usd_per_kwh"] is None:
        stated["usd_per_kwh"] = settings.energy_usd_per_kwh
    if stated["pue"] is None and "energy_pue" in settings.set_by:
        stated["pue"] = settings.energy_pue
    try:
        owned = Ownership(capex, nameplate_kw, node_w=node_w, at_plug=True, **stated)
    except ValueError as error:
        raise BadInput(str(error)) from None
    upgrade(where, "advice")
    minute_ts = int(time.time()) // 60 * 60
    terms_by_host = ownership(price_store(where))
    from_ts = minute_ts if host in terms_by_host else 0
    with repository.AdviceRepository(where).writing() as connection:
        repository.add_owned(
            connection, host=host, terms=owned.text, from_ts=from_ts, set_ts=minute_ts, set_by=getpass.getuser()
        )
    since = f"from {format_utc(from_ts)} on: past costs stay as they are" if from_ts else "from the beginning"
    echo(f"{host} is owned, {since}.")
    _show(where, host, minute_ts)


def put(
    database: Database,
    selector: str,
    start: str | None,
    note: str | None,
    nano: int | None,
    yes: bool,
    until: str | None = None,
    entered: Entered | None = None,
) -> None:
    """Show the devices and past costs that a price (None: no price) applies to, and set it.

    Starts again if another person sets a price meanwhile. Raises BadInput."""
    from pertoken.costs.prices.book import Price, identity
    from pertoken.costs.repricing import read_prices
    from pertoken.migrations import upgrade
    from pertoken.store import repository

    selector = selector.strip()
    if not identity(selector):
        raise BadInput("the device is blank: name `cpu`, `gpu`, words of a GPU's name, or a UUID")
    now_ts = int(time.time())
    stated_ts = None if start is None else price_lists.start_ts(start, now_ts)
    _, where = database.located()
    upgrade(where, "advice")
    advice = repository.AdviceRepository(where)
    while True:
        prices = read_prices(where, now_ts)
        earlier_prices = [earlier.nano_usd_per_device_hour for earlier in prices.book.of_selector(selector)]
        if nano is None and not any(earlier is not None for earlier in earlier_prices):
            set_for = ", ".join(dict.fromkeys(earlier.selector for earlier in prices.book.prices)) or "nothing"
            raise BadInput(f"no price is set for {selector!r}; prices are set for {set_for}")
        from_ts = stated_ts
        if from_ts is None:
            from_ts = 0 if prices.unpriced(selector) else price_lists.start_ts("now", now_ts)
        until_ts = end_ts(until, from_ts, now_ts)
        price = Price(
            selector,
            nano,
            from_ts,
            now_ts,
            getpass.getuser(),
            note,
            seq=prices.seq + 1,
            until_ts=until_ts,
            entered=entered,
        )
        echo(f"{selector}: {per_hour(price)}, {period(from_ts, until_ts, now_ts)}.")
        echo(named(prices, selector))
        after = prices.having(price)
        _confirm_past(where, prices.book, after, price.from_ts, now_ts, yes or stated_ts is None)
        try:
            with advice.writing() as connection:
                repository.add_price(
                    connection,
                    read_seq=prices.seq,
                    selector=selector,
                    nano_usd_per_device_hour=nano,
                    from_ts=from_ts,
                    set_ts=now_ts,
                    set_by=price.set_by,
                    note=note,
                    until_ts=until_ts,
                    entered=None if entered is None else entered.stored,
                )
        except repository.PricesChanged:
            echo("Another person changed prices meanwhile; starting again.", err=True)
        else:
            break
    _after(prices, price, after, now_ts)
    if stated_ts is None and from_ts:
        echo("Costs before that stay as they are; `--from ever` would change them, after showing how.")


def _confirm_past(
    where: StoreLocation, present_book: PriceBook, proposed_book: PriceBook, from_ts: int, now_ts: int, yes: bool
) -> None:
    """Show the past costs that a change of prices changes, and ask if any were known.

    Raises BadInput without a terminal.
    """
    from pertoken.costs.repricing import repriced

    if from_ts > now_ts:
        return
    with Progress("Pricing past hours again"):
        changed = repriced(where, present_book, proposed_book, from_ts, now_ts)
    changes = [change for change in changed if change.first_ts < now_ts // 60 * 60]  # not the current minute
    for change in changes:
        hours = change.device_ms / 3_600_000
        first, last = format_utc(change.first_ts), format_utc(change.last_ts)
        echo(
            f"Cost of {len(change.devices)} x {change.name} from {first} to {last} "
            f"({hours:,.{1 if hours >= 1 else 3}f} device-hours): {amount(change.before, 'no price')} → "
            f"{amount(change.after, 'no price')}"
        )
    if not yes and any(change.before is not None for change in changes):
        unasked = "the cost of past hours would change, as shown: nothing was set; pass --yes to do it"
        confirm("Change the cost of past hours?", unasked, "nothing was set")


def _after(prices: Prices, price: Price, book: PriceBook, now_ts: int) -> None:
    """Print devices of this selector to which another price of the book applies, and later prices of the selector."""
    then = max(now_ts, price.from_ts)
    others: dict[str, list[PriceSubject]] = {}
    for device in prices.named(price.selector):
        applied = book.at(device, then)
        if applied != price:
            what = "no price" if applied is None else f"{per_hour(applied)} of {applied.selector}"
            others.setdefault(what, []).append(device)
    for what, devices in others.items():
        echo(f"{counted(devices)}: {what} {'applies' if what != 'no price' else 'is known'} then.")
    for later in book.of_selector(price.selector):
        if later.from_ts > price.from_ts and later.nano_usd_per_device_hour is not None:
            echo(f"{later.selector}: {per_hour(later)} {since(later.from_ts, then)}, as set before.")


def put_discount(
    database: Database,
    provider: str,
    millionths: int | None,
    start: str | None,
    until: str | None,
    note: str | None,
    yes: bool,
) -> None:
    """Show the past costs that a discount (None: no discount) changes, and set it.

    Starts again if another person sets one meanwhile. Raises BadInput.
    """
    from pertoken.catalog.market import load_market
    from pertoken.catalog.offers import newest
    from pertoken.costs.prices.book import Discount
    from pertoken.costs.prices.stored import discounts_set, offers_imported
    from pertoken.costs.repricing import read_prices
    from pertoken.migrations import upgrade
    from pertoken.store import repository

    name = provider.strip().lower()
    now_ts = int(time.time())
    from_ts = price_lists.start_ts(start or "now", now_ts)
    until_ts = end_ts(until, from_ts, now_ts)
    _, where = database.located()
    upgrade(where, "advice")
    while True:
        store = price_store(where)
        discounts = discounts_set(store)
        market = load_market().having(offers_imported(store))
        listed = sum(offer.provider == name for offer in newest(market.all_offers))
        if millionths is None and not any(discount.provider == name for discount in discounts.all):
            raise BadInput(f"no discount is set for {name!r}")
        if millionths is not None and not listed:
            providers = ", ".join(sorted({offer.provider for offer in market.all_offers}))
            raise BadInput(f"no list price of {name!r} is known; providers are {providers}")
        seq = max((discount.seq for discount in discounts.all), default=0)
        discount = Discount(name, millionths, from_ts, until_ts, now_ts, getpass.getuser(), note, seq + 1)
        prices = "list price" if listed == 1 else "list prices"
        echo(f"{name}: {discount.percent} on {listed} {prices}, {period(from_ts, until_ts, now_ts)}.")
        present, proposed = read_prices(where, now_ts), read_prices(where, now_ts, (discount,))
        _confirm_past(where, present.book, proposed.book, from_ts, now_ts, yes or start in (None, "now"))
        try:
            with repository.AdviceRepository(where).writing() as connection:
                repository.add_discount(
                    connection,
                    read_seq=seq,
                    provider=name,
                    millionths=millionths,
                    from_ts=from_ts,
                    until_ts=until_ts,
                    set_ts=now_ts,
                    set_by=discount.set_by,
                    note=note,
                )
        except repository.PricesChanged:
            echo("Another person changed discounts meanwhile; starting again.", err=True)
        else:
            return


def _show(where: StoreLocation, host: str, now_ts: int) -> None:
    from pertoken.costs.repricing import read_prices

    newest = [detected[-1] for detected in read_prices(where, now_ts).book.detected.values() if detected]
    prices = [price for price in newest if f"owning {host} " in (price.note or "")]
    if not prices:
        echo(
            f"No device of {host!r} was recorded yet, or its instance has a list price: "
            "it applies to devices recorded later."
        )
    for price in prices:
        echo(f"{price.selector}: {amount(price.nano_usd_per_device_hour)} an hour, {price.note}")
