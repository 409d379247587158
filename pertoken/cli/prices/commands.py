"""`pertoken prices`: what a device-hour costs, effective-dated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, echo_json, json_option, settings_of

if TYPE_CHECKING:
    from pertoken.costs.prices.book import Price, Priced
    from pertoken.costs.prices.repricing import Prices
    from pertoken.store.connect.location import StoreLocation

_FROM = "`ever`, `now`, or a time such as 2026-11-01 or 2026-11-01T08:00 (UTC)"
_yes_option = click.option("--yes", is_flag=True, help="Change the cost of past hours without being asked.")


@click.group(short_help="Set and show what a device-hour costs.")
def prices() -> None:
    """Set and show what a device-hour costs you. A new price never changes past costs unless you say so."""


@prices.command("set", short_help="Set the price of a device-hour.", context_settings={"ignore_unknown_options": True})
@click.argument("dollars", metavar="DOLLARS")
@click.option(
    "--for",
    "selector",
    metavar="DEVICE",
    required=True,
    help="`cpu` (a host's CPUs together), `gpu` (every GPU), words of a GPU's name such as H100 or \"H100 PCIe\", or a "
    "device's UUID.",
)
@click.option(
    "--from",
    "start",
    metavar="WHEN",
    help=f"From when on: {_FROM} [default: ever if nothing that DEVICE names has a price yet, else now].",
)
@click.option("--note", help="Where the price comes from, for whoever reads it later.")
@_yes_option
@db_option
def set_price(
    config_file: str | None,
    db: str | None,
    dollars: str,
    selector: str,
    start: str | None,
    note: str | None,
    yes: bool,
) -> None:
    """Set what one hour of one device costs, in DOLLARS (an 8-GPU instance at $55.04 is 6.88 for each GPU).

    The most exact DEVICE wins where several apply. Names match by whole words: H100 names an "NVIDIA H100 80GB HBM3",
    and H10 does not. If the cost of past hours changes, it is shown before and after, and you are asked.
    """
    _put(config_file, db, selector, start, note, _nano(dollars), yes)


@prices.command("unset", short_help="Take back the price of a device-hour.")
@click.argument("selector", metavar="DEVICE")
@click.option("--from", "start", metavar="WHEN", default="now", show_default=True, help=f"From when on: {_FROM}.")
@click.option("--note", help="Why, for whoever reads it later.")
@_yes_option
@db_option
def unset_price(
    config_file: str | None, db: str | None, selector: str, start: str, note: str | None, yes: bool
) -> None:
    """Take back the price set for DEVICE, written as it was set. Past costs stay as they are, and so does its history.

    From then on a less exact price applies, or the list price of a detected instance, or none.
    """
    _put(config_file, db, selector, start, note, None, yes)


@prices.command("show", short_help="Show every price ever set.")
@db_option
@json_option
def show_prices(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show every price ever set, oldest first, with the recorded devices it names, and list prices of devices of a
    detected instance without one."""
    import time
    from dataclasses import asdict

    from pertoken.costs.prices.repricing import read_prices
    from pertoken.store.connect.location import locate

    settings = settings_of(config_file, db=db)
    now = int(time.time())
    known = read_prices(locate(settings.db, settings.advice), now)
    listed = [price for each in known.book.detected.values() for price in each]
    if as_json:
        shown = [
            asdict(each) | {"devices": [one.uuid for one in known.named(each.selector)]} for each in known.book.prices
        ]
        echo_json([*shown, *map(asdict, listed)])
        return
    if not known.book.prices and not listed:
        echo("No price was set yet. `pertoken prices set DOLLARS --for DEVICE` sets one.")
    for each in known.book.prices:
        echo(f"{_since(each.from_ts, now):24} {_per_hour(each):>14}  {each.selector}  {_by(each)}")
        echo(f"{'':24} {_named(known, each.selector)}")
    shown_last = {each[-1].selector: each[-1] for each in known.book.detected.values() if each}
    for each in listed:
        if each.set_by == "ownership" and each is not shown_last[each.selector]:
            continue  # one of each week that its energy was measured in
        since = f"where none is set, {_since(each.from_ts, now)}"
        echo(f"{since:24} {_per_hour(each):>14}  {each.selector}  ({each.note})")
    for selector in dict.fromkeys(each.selector for each in known.book.prices):
        if lost := known.lost(selector):
            echo(_no_longer(selector, lost), err=True)


@prices.command("import", short_help="Import list prices of instances from a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Write without being asked.")
@db_option
def import_prices(config_file: str | None, db: str | None, file: Path, yes: bool) -> None:
    """Import list prices of instances from FILE, CSV or JSON (a list of objects).

    Its columns: provider, instance_type, accelerator, n_devices, region, purchase (on_demand, spot, reserved_1y,
    reserved_3y or capacity_block), usd_per_hour of the whole instance, as_of (a date), source, and if you like
    confidence (high, medium or low) and note. The difference is shown before anything is written; what is implausible
    is left out with its reason. A changed price counts from now on: past costs stay as they are.
    """
    from pertoken.cli.prices.offers import write
    from pertoken.costs.prices.offer_lists import read_list

    write(config_file, db, lambda market, today: read_list(file, market), yes)


@prices.command("update", short_help="Fetch the newest list prices.")
@click.option("--yes", is_flag=True, help="Write without being asked.")
@db_option
def update_prices(config_file: str | None, db: str | None, yes: bool) -> None:
    """Fetch the newest list prices of AWS, Azure, Google Cloud, Lambda, Nebius, OCI, RunPod and Verda.

    It needs a network and the package gpuhunt (`pip install 'pertoken[prices]'`), which collects them every day. The
    difference is shown before anything is written, as for `import`.
    """
    from pertoken.cli.prices.offers import fetched, write

    write(config_file, db, fetched, yes)


def _terms(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each number of the cost of ownership, its default and usual range in its help."""
    from pertoken.catalog.owned import terms

    for name, term in reversed(list(terms().items())):
        text = f"{term.meaning[0].upper()}{term.meaning[1:]} [default: {term.value:g}; usual: {term.usual}]."
        command = click.option(f"--{name.replace('_', '-')}", name, type=float, help=text)(command)
    return command


@prices.command("own", short_help="State what a server of your own cost.")
@click.argument("host")
@click.option(
    "--capex", type=float, required=True, help="Dollars paid for the whole server, with its share of the network."
)
@click.option("--nameplate-kw", type=float, help="Power reserved for the server; without it colocation is not counted.")
@_terms
@db_option
def own_server(
    config_file: str | None, db: str | None, host: str, capex: float, nameplate_kw: float | None, **stated: float | None
) -> None:
    """State what the server HOST cost, so that an hour of its devices has the price of owning it.

    To capital, maintenance and room comes the energy that was measured, week by week. It counts for devices that no
    price is set for: from the beginning, or from now on where HOST had such a price already.
    """
    from pertoken.cli.prices.ownership import own

    own(config_file, db, host, {"capex_usd": capex, "nameplate_kw": nameplate_kw, **stated})


def _put(
    config_file: str | None,
    db: str | None,
    selector: str,
    start: str | None,
    note: str | None,
    nano: int | None,
    yes: bool,
) -> None:
    """Show what a price, or none, is for and changes, and set it; again if someone else sets one meanwhile."""
    import getpass
    import time

    from pertoken.costs.prices.book import Price
    from pertoken.costs.prices.repricing import read_prices
    from pertoken.costs.prices.selectors import identity
    from pertoken.errors import BadInput
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.connect.location import locate
    from pertoken.store.repository import AdviceRepository, PricesChanged

    selector = selector.strip()
    if not identity(selector):
        raise BadInput("the device is blank: name `cpu`, `gpu`, words of a GPU's name, or a UUID")
    now = int(time.time())
    asked_ts = None if start is None else _start(start, now)
    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    upgrade(where, "advice")
    advice = AdviceRepository(where)
    while True:
        known = read_prices(where, now)
        if nano is None and not any(
            each.nano_usd_per_device_hour is not None for each in known.book.of_selector(selector)
        ):
            set_for = ", ".join(dict.fromkeys(each.selector for each in known.book.prices)) or "nothing"
            raise BadInput(f"no price is set for {selector!r}; prices are set for {set_for}")
        from_ts = asked_ts
        if from_ts is None:
            from_ts = 0 if known.unpriced(selector) else _start("now", now)
        price = Price(selector, nano, from_ts, now, getpass.getuser(), note, seq=known.seq + 1)
        echo(f"{selector}: {_per_hour(price)}, {_since(from_ts, now)}.")
        echo(_named(known, selector))
        _confirm(where, known, price, now, yes or asked_ts is None)
        try:
            with advice.writing() as connection:
                repository.add_price(
                    connection,
                    read_seq=known.seq,
                    selector=selector,
                    nano_usd_per_device_hour=nano,
                    from_ts=from_ts,
                    set_ts=now,
                    set_by=price.set_by,
                    note=note,
                )
        except PricesChanged:
            echo("Someone else changed prices meanwhile; looking again.", err=True)
            continue
        break
    _after(known, price, now)
    if asked_ts is None and from_ts:
        echo("Costs before that stay as they are; `--from ever` would change them, and shows how before it does.")


def _confirm(where: StoreLocation, known: Prices, price: Price, now: int, yes: bool) -> None:
    """Show which costs so far a price changes, and ask if any were known. Raises BadInput where nobody can be asked."""
    import sys

    from pertoken.cli.progress import Progress
    from pertoken.costs.prices.repricing import repriced
    from pertoken.errors import BadInput
    from pertoken.tui.amounts import amount

    if price.from_ts > now:
        return
    with Progress("Pricing past hours again"):
        changed = repriced(where, known.book, known.having(price), price.from_ts, now)
    changes = [each for each in changed if each.first_ts < now // 60 * 60]  # the minute under way is not past
    for each in changes:
        echo(
            f"Cost of {len(each.devices)} x {each.name} from {_when(each.first_ts)} to {_when(each.last_ts)} "
            f"({each.device_ms / 3_600_000:,.1f} device-hours): {amount(each.before, 'no price')} → "
            f"{amount(each.after, 'no price')}"
        )
    if yes or all(each.before is None for each in changes):
        return
    if not sys.stdin.isatty():
        raise BadInput("the cost of past hours would change, as shown: nothing was set; pass --yes to do it")
    if not click.confirm("Change the cost of past hours?"):
        raise BadInput("nothing was set")


def _after(known: Prices, price: Price, now: int) -> None:
    """Report what keeps a price from being all there is to it."""
    then = max(now, price.from_ts)
    book = known.having(price)
    others: dict[str, list[Priced]] = {}
    for device in known.named(price.selector):
        found = book.at(device, then)
        if found != price:
            what = "no price" if found is None else f"{_per_hour(found)} of {found.selector}"
            others.setdefault(what, []).append(device)
    for what, devices in others.items():
        echo(f"{_counted(devices)}: {what} {'applies' if what != 'no price' else 'is known'} then.")
    for later in book.of_selector(price.selector):
        if later.from_ts > price.from_ts and later.nano_usd_per_device_hour is not None:
            echo(f"{later.selector}: {_per_hour(later)} {_since(later.from_ts, then)}, as it was set before.")


def _named(known: Prices, selector: str) -> str:
    """Which recorded devices a selector names, so that a typo is seen at once."""
    from pertoken.costs.prices.selectors import accelerators

    devices = known.named(selector)
    if devices:
        return f"It applies to {_counted(devices)}."
    if not known.devices:
        return "Nothing was recorded yet; it applies to what comes."
    recorded = ", ".join(dict.fromkeys(each.name for each in known.devices))
    what = "No recorded device matches" if accelerators(selector) else "Nothing recorded or in the catalog matches"
    return f"{what} {selector!r} yet; recorded: {recorded}."


def _counted(devices: Sequence[Priced]) -> str:
    names = [each.name for each in devices]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _no_longer(selector: str, names: Sequence[str]) -> str:
    return (
        f"{selector!r} no longer prices {', '.join(names)}: names match by whole words. Set the price again for the "
        f"device's own name with --from ever, then `pertoken prices unset` this one."
    )


def _since(from_ts: int, now: int) -> str:
    if from_ts == 0:
        return "from the beginning"
    return f"{'begins' if from_ts > now else 'from'} {_when(from_ts)}"


def _per_hour(price: Price) -> str:
    nano = price.nano_usd_per_device_hour
    if nano is None:
        return "no price"
    from pertoken.tui.amounts import amount, currency_values

    other = "" if currency_values() is None else f" ({amount(nano)})"
    return f"{_exact(nano)} an hour{other}"


def _exact(nano: int) -> str:
    """Dollars to the last nano-dollar, and at least to the cent."""
    dollars, rest = divmod(nano, 10**9)
    return f"${dollars:,}.{f'{rest:09}'[:2]}{f'{rest:09}'[2:].rstrip('0')}"


def _by(price: Price) -> str:
    note = f": {price.note}" if price.note else ""
    return f"(set {_when(price.set_ts)} by {price.set_by}{note})"


def _when(ts: int) -> str:
    from pertoken.units import format_utc

    return format_utc(ts)


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
    nano = int((value * NANO_USD).to_integral_value())
    if value and not nano:
        raise BadInput(f"{dollars}: prices are kept to the nano-dollar, and this is less")
    return nano


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
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 60 * 60)
