"""`pertoken prices`: what a device-hour costs, effective-dated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, echo_json, json_option, settings_of

if TYPE_CHECKING:
    from pertoken.costs.prices.book import Price, Priced
    from pertoken.costs.repricing import Prices
    from pertoken.store.connect.location import StoreLocation

_FROM = "`ever`, `now`, or a time such as 2026-11-01 or 2026-11-01T08:00 (UTC)"
_yes_option = click.option("--yes", is_flag=True, help="Change the cost of past hours without being asked.")


@click.group(short_help="Set and show what a device-hour costs.")
def prices() -> None:
    """Set and show what a device-hour costs you. A new price changes past costs only if you confirm it."""


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
    help=f"Start: {_FROM} [default: ever if no device of DEVICE has a price yet, else now].",
)
@click.option("--note", help="Source of the price, kept with it.")
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

    If several prices apply, that with the most exact DEVICE is used. Names match by whole words: H100 matches "NVIDIA
    H100 80GB HBM3", H10 does not. If the cost of past hours changes, old and new cost are shown, and you are asked.
    """
    _put(config_file, db, selector, start, note, _nano(dollars), yes)


@prices.command("unset", short_help="Withdraw the price of a device-hour.")
@click.argument("selector", metavar="DEVICE")
@click.option("--from", "start", metavar="WHEN", default="now", show_default=True, help=f"Start: {_FROM}.")
@click.option("--note", help="Your reason, kept with it.")
@_yes_option
@db_option
def unset_price(
    config_file: str | None, db: str | None, selector: str, start: str, note: str | None, yes: bool
) -> None:
    """Withdraw the price of DEVICE, written as when it was set. Past costs and the history of prices do not change.

    From then on a less exact price applies, or the list price of the detected instance, or none.
    """
    _put(config_file, db, selector, start, note, None, yes)


@prices.command("show", short_help="Show every price ever set.")
@db_option
@json_option
def show_prices(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show every price ever set, oldest first, with the recorded devices that it applies to; then list prices of
    detected instances that have no other price."""
    import time
    from dataclasses import asdict

    from pertoken.costs.repricing import read_prices
    from pertoken.store.connect.location import locate

    settings = settings_of(config_file, db=db)
    now = int(time.time())
    known = read_prices(locate(settings.db, settings.advice), now)
    listed = [price for detected in known.book.detected.values() for price in detected]
    if as_json:
        shown = [
            asdict(price) | {"devices": [device.uuid for device in known.named(price.selector)]}
            for price in known.book.prices
        ]
        echo_json([*shown, *map(asdict, listed)])
        return
    if not known.book.prices and not listed:
        echo("No price was set yet. `pertoken prices set DOLLARS --for DEVICE` sets one.")
    for price in known.book.prices:
        echo(f"{_since(price.from_ts, now):24} {_per_hour(price):>14}  {price.selector}  {_by(price)}")
        echo(f"{'':24} {_named(known, price.selector)}")
    shown_last = {detected[-1].selector: detected[-1] for detected in known.book.detected.values() if detected}
    for price in listed:
        if price.set_by == "ownership" and price is not shown_last[price.selector]:
            continue  # there is a price for each week of measured energy; only the newest is shown
        since = f"where none is set, {_since(price.from_ts, now)}"
        echo(f"{since:24} {_per_hour(price):>14}  {price.selector}  ({price.note})")
    for selector in dict.fromkeys(price.selector for price in known.book.prices):
        if lost := known.lost(selector):
            echo(_no_longer(selector, lost), err=True)


@prices.command("import", short_help="Import list prices of instances from a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Write without being asked.")
@db_option
def import_prices(config_file: str | None, db: str | None, file: Path, yes: bool) -> None:
    """Import list prices of instances from FILE, CSV or JSON (a list of objects).

    Its columns: provider, instance_type, accelerator, n_devices, region, purchase (on_demand, spot, reserved_1y,
    reserved_3y or capacity_block), usd_per_hour of the whole instance, as_of (a date), source, and optionally
    confidence (high, medium or low) and note. The difference is shown before anything is written; implausible rows are
    left out with the reason. A changed price counts from now on: past costs do not change.
    """
    from pertoken.cli.prices.offers import write
    from pertoken.costs.prices.offer_lists import read_list

    write(config_file, db, lambda market, today: read_list(file, market), yes)


@prices.command("update", short_help="Fetch the newest list prices.")
@click.option("--yes", is_flag=True, help="Write without being asked.")
@db_option
def update_prices(config_file: str | None, db: str | None, yes: bool) -> None:
    """Fetch the newest list prices of AWS, Azure, Google Cloud, Lambda, Nebius, OCI, RunPod and Verda.

    Needs network access and the package gpuhunt (`pip install 'pertoken[prices]'`), which publishes lists every day.
    The difference is shown before anything is written, as for `import`.
    """
    from pertoken.cli.prices.offers import fetched, write

    write(config_file, db, fetched, yes)


def _terms(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each term of the cost of ownership; its help has the default and the usual range."""
    from pertoken.catalog.owned import terms

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
@_terms
@db_option
def own_server(
    config_file: str | None, db: str | None, host: str, capex: float, nameplate_kw: float | None, **stated: float | None
) -> None:
    """State the cost of the server HOST, so that an hour of its devices has the price of owning it.

    That price is capital, maintenance and colocation plus the measured energy of each week. It applies to devices
    without a price of `prices set`: from the beginning, or from now on if ownership of HOST was stated before."""
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
    """Show the devices and past costs that a price (None: no price) applies to, and set it.

    Starts again if another person sets a price meanwhile. Raises BadInput."""
    import getpass
    import time

    from pertoken.costs.prices.book import Price
    from pertoken.costs.prices.selectors import identity
    from pertoken.costs.repricing import read_prices
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
            earlier.nano_usd_per_device_hour is not None for earlier in known.book.of_selector(selector)
        ):
            set_for = ", ".join(dict.fromkeys(earlier.selector for earlier in known.book.prices)) or "nothing"
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
            echo("Another person changed prices meanwhile; starting again.", err=True)
            continue
        break
    _after(known, price, now)
    if asked_ts is None and from_ts:
        echo("Costs before that stay as they are; `--from ever` would change them, after showing how.")


def _confirm(where: StoreLocation, known: Prices, price: Price, now: int, yes: bool) -> None:
    """Show the past costs that a price changes, and ask if any were known. Raises BadInput without a terminal."""
    import sys

    from pertoken.cli.progress import Progress
    from pertoken.costs.repricing import repriced
    from pertoken.errors import BadInput
    from pertoken.tui.amounts import amount

    if price.from_ts > now:
        return
    with Progress("Pricing past hours again"):
        changed = repriced(where, known.book, known.having(price), price.from_ts, now)
    changes = [change for change in changed if change.first_ts < now // 60 * 60]  # not the current minute
    for change in changes:
        hours = change.device_ms / 3_600_000
        echo(
            f"Cost of {len(change.devices)} x {change.name} from {_when(change.first_ts)} to {_when(change.last_ts)} "
            f"({hours:,.{1 if hours >= 1 else 3}f} device-hours): {amount(change.before, 'no price')} → "
            f"{amount(change.after, 'no price')}"
        )
    if yes or all(change.before is None for change in changes):
        return
    if not sys.stdin.isatty():
        raise BadInput("the cost of past hours would change, as shown: nothing was set; pass --yes to do it")
    if not click.confirm("Change the cost of past hours?"):
        raise BadInput("nothing was set")


def _after(known: Prices, price: Price, now: int) -> None:
    """Print devices of this selector to which another price applies, and later prices of the selector."""
    then = max(now, price.from_ts)
    book = known.having(price)
    others: dict[str, list[Priced]] = {}
    for device in known.named(price.selector):
        applied = book.at(device, then)
        if applied != price:
            what = "no price" if applied is None else f"{_per_hour(applied)} of {applied.selector}"
            others.setdefault(what, []).append(device)
    for what, devices in others.items():
        echo(f"{_counted(devices)}: {what} {'applies' if what != 'no price' else 'is known'} then.")
    for later in book.of_selector(price.selector):
        if later.from_ts > price.from_ts and later.nano_usd_per_device_hour is not None:
            echo(f"{later.selector}: {_per_hour(later)} {_since(later.from_ts, then)}, as set before.")


def _named(known: Prices, selector: str) -> str:
    """Return a line with the recorded devices that a selector matches, which shows a typo at once."""
    from pertoken.costs.prices.selectors import accelerators

    devices = known.named(selector)
    if devices:
        return f"It applies to {_counted(devices)}."
    if not known.devices:
        return "Nothing was recorded yet; it applies to devices recorded later."
    recorded = ", ".join(dict.fromkeys(device.name for device in known.devices))
    what = "No recorded device matches" if accelerators(selector) else "Nothing recorded or in the catalog matches"
    return f"{what} {selector!r} yet; recorded: {recorded}."


def _counted(devices: Sequence[Priced]) -> str:
    names = [device.name for device in devices]
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
    """Return dollars to the last nano-dollar, and at least to the cent."""
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
