"""Commands `pertoken prices show` and `pertoken prices offers`: prices set, and list prices with their sources."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, Progress, confirm, db_option, echo, echo_json, json_option
from pertoken.errors import BadInput
from pertoken.settings.values import USD, read_code
from pertoken.text.amounts import amount, currency_values
from pertoken.units import NANO_USD, format_utc

if TYPE_CHECKING:
    from pertoken.catalog.coverage import Unpriced
    from pertoken.catalog.market import Market
    from pertoken.catalog.offers import Offer
    from pertoken.costs.prices.book import Discount, Entered, Price, PriceSubject
    from pertoken.costs.prices.offers import Difference, OfferList
    from pertoken.costs.repricing import Prices
    from pertoken.store.connect.location import StoreLocation
    from pertoken.store.connect.open import Store


MAX_USD = 1_000_000
provider_option = click.option("--provider", metavar="NAME", help="Provider as in list prices, such as aws.")


def entered_amount(
    text: str, currency: str | None, rate: str | None, rate_date: str | None, rate_source: str | None, who: str
) -> tuple[int, Entered | None]:
    """Return an amount in nano-USD, and as it was entered in another currency. Raises BadInput."""
    from pertoken.costs.prices.book import Entered

    if currency is None:
        if (rate, rate_date, rate_source) != (None, None, None):
            raise BadInput("--rate, --rate-date and --rate-source belong to a --currency: name it, such as EUR")
        return nano_usd(text), None
    try:
        code = read_code(currency)
    except ValueError as error:
        raise BadInput(f"--currency {currency}: {error}") from None
    if code == USD:
        raise BadInput("dollars need no --currency: leave it and --rate out")
    if rate is None:
        raise BadInput(f"--currency {code} needs --rate: the dollars of one {code}, such as 1.08; no rate is assumed")
    today = datetime.fromtimestamp(time.time(), UTC).date()
    try:
        day = today if rate_date is None else date.fromisoformat(rate_date)
    except ValueError:
        raise BadInput(f"--rate-date {rate_date!r}: write a date like 2026-11-28") from None
    if day > today:
        raise BadInput(f"--rate-date {day}: this day is not over yet")
    usd_per_unit = _number(rate, "a rate: write the dollars of one unit like 1.08")
    if not usd_per_unit.is_finite() or not 0 < usd_per_unit <= MAX_USD:
        raise BadInput(f"--rate {rate}: one {code} is worth more than 0 dollars")
    amount = _number(text.strip(), f"a price: write {code} like 2.50")
    entered = Entered(amount, code, usd_per_unit, day, rate_source or f"entered by {who}")
    return _checked(amount * usd_per_unit if amount.is_finite() else amount, text), entered


def nano_usd(dollars: str) -> int:
    """Return dollars as entered, in nano-USD. Raises BadInput."""
    return _checked(_number(dollars.strip().lstrip("$"), "a price: write dollars like 2.50"), dollars)


def _number(text: str, what: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise BadInput(f"{text!r} is not {what}") from None


def _checked(value: Decimal, text: str) -> int:
    if not value.is_finite() or not 0 <= value <= MAX_USD:
        raise BadInput(f"{text}: a device-hour costs between 0 and {MAX_USD:,} dollars")
    nano = int((value * NANO_USD).to_integral_value())
    if value and not nano:
        raise BadInput(f"{text}: prices are kept to the nano-dollar, and this is less")
    return nano


def millionths(percent: str) -> int:
    """Return a discount such as `30%` in millionths of a price. Raises BadInput."""
    text = percent.strip()
    if not text.endswith("%"):
        raise BadInput(f"--discount {percent!r}: write percent of the list price, such as 30%")
    value = _number(text.removesuffix("%").strip(), "a discount: write percent of the list price, such as 30%")
    part = int((value * 10_000).to_integral_value()) if value.is_finite() else 0
    if not 0 < part <= 1_000_000:
        raise BadInput(f"--discount {percent}: it is above 0% and at most 100% of the list price")
    return part


def start_ts(text: str, now_ts: int) -> int:
    """Return the instant that a price begins at: `ever` is 0. Raises BadInput."""
    if text == "ever":
        return 0
    if text == "now":
        return now_ts // 60 * 60
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--from {text!r}: write `ever`, `now`, or a time like 2026-11-01T08:00") from None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 60 * 60)


def end_ts(text: str | None, from_ts: int, now_ts: int) -> int | None:
    """Return the instant that a price ends at; a date alone counts to its last minute. Raises BadInput."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--until {text!r}: write a date like 2026-12-31, or a time like 2026-12-31T18:00") from None
    if len(text) == len("2026-12-31"):
        moment += timedelta(days=1)
    ts = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 60 * 60
    if ts <= from_ts:
        raise BadInput(f"--until {text}: it ends before it starts, {since(from_ts, now_ts)}")
    return ts


def since(from_ts: int, now_ts: int) -> str:
    """Return the start of a price as text."""
    if from_ts == 0:
        return "from the beginning"
    return f"{'begins' if from_ts > now_ts else 'from'} {format_utc(from_ts)}"


def period(from_ts: int, until_ts: int | None, now_ts: int) -> str:
    """Return the start of a price, and its end where it has one."""
    if until_ts is None:
        return since(from_ts, now_ts)
    return f"{since(from_ts, now_ts)} {'to' if until_ts > now_ts else 'ended'} {format_utc(until_ts)}"


def per_hour(price: Price) -> str:
    """Return a price as text, in dollars and as it was entered."""
    nano = price.nano_usd_per_device_hour
    if nano is None:
        return "no price"

    in_currency = "" if currency_values() is None else f" ({amount(nano)})"
    entered = "" if price.entered is None else f", entered as {price.entered.text}"
    return f"{_exact(nano)} an hour{in_currency}{entered}"


def _exact(nano: int) -> str:
    """Return dollars to the last nano-dollar, and at least to the cent."""
    dollars, rest = divmod(nano, 10**9)
    return f"${dollars:,}.{f'{rest:09}'[:2]}{f'{rest:09}'[2:].rstrip('0')}"


def set_note(price: Price | Discount) -> str:
    """Return who set a price or a discount, when and why."""
    note = f": {price.note}" if price.note else ""
    return f"(set {format_utc(price.set_ts)} by {price.set_by}{note})"


def named(prices: Prices, selector: str) -> str:
    """Return a line with the recorded devices that a selector matches, which shows a typo at once."""
    from pertoken.costs.prices.book import accelerators

    devices = prices.named(selector)
    if devices:
        return f"It applies to {counted(devices)}."
    if not prices.devices:
        return "Nothing was recorded yet; it applies to devices recorded later."
    recorded = ", ".join(dict.fromkeys(device.name for device in prices.devices))
    what = "No recorded device matches" if accelerators(selector) else "Nothing recorded or in the catalog matches"
    return f"{what} {selector!r} yet; recorded: {recorded}."


def price_store(where: StoreLocation) -> Store:
    """Return a database for reading its prices, also where no telemetry was recorded."""
    from pertoken.store.connect.open import Store, open_advice, reading

    return Store(where, reading(where, "telemetry"), open_advice(where))


def counted(devices: Sequence[PriceSubject]) -> str:
    """Return devices by name with their numbers."""
    names = [device.name for device in devices]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def no_longer(selector: str, names: Sequence[str]) -> str:
    """Return a warning that a selector has lost devices, with the remedy."""
    return (
        f"{selector!r} no longer prices {', '.join(names)}: names match by whole words. Set the price again for the "
        f"device's own name with --from ever, then `pertoken prices unset` this one."
    )


@click.command("show", short_help="Show every price and discount ever set.")
@db_option
@json_option
def show_prices(database: Database, as_json: bool) -> None:
    """Show every price and discount ever set, oldest first, with the recorded devices that it applies to; then list
    prices of detected instances that have no other price."""
    from pertoken.costs.repricing import read_prices

    _, where = database.located()
    now_ts = int(time.time())
    prices = read_prices(where, now_ts)
    listed = [price for detected in prices.book.detected.values() for price in detected]
    if as_json:
        devices = {
            price.selector: [device.uuid for device in prices.named(price.selector)] for price in prices.book.prices
        }
        shown = [_plain(price) | {"devices": devices[price.selector]} for price in prices.book.prices]
        discounts = [asdict(discount) for discount in prices.discounts.all]
        echo_json([*shown, *map(_plain, listed), *discounts])
        return
    if not prices.book.prices and not listed and not prices.discounts.all:
        echo("No price was set yet. `pertoken prices set DOLLARS --for DEVICE` sets one.")
    for price in prices.book.prices:
        in_force = period(price.from_ts, price.until_ts, now_ts)
        echo(f"{in_force:24} {per_hour(price):>14}  {price.selector}  {set_note(price)}")
        echo(f"{'':24} {named(prices, price.selector)}")
    for discount in prices.discounts.all:
        in_force = period(discount.from_ts, discount.until_ts, now_ts)
        echo(f"{in_force:24} {discount.percent:>14}  list prices of {discount.provider}  {set_note(discount)}")
    _show_detected(prices, listed, now_ts)
    for selector in dict.fromkeys(price.selector for price in prices.book.prices):
        if lost := prices.lost(selector):
            echo(no_longer(selector, lost), err=True)


def _plain(price: Price) -> dict[str, object]:
    entered = None if price.entered is None else {name: str(value) for name, value in asdict(price.entered).items()}
    return asdict(price) | {"entered": entered, "offer": None if price.offer is None else _listed(price.offer)}


def _show_detected(prices: Prices, listed: Sequence[Price], now_ts: int) -> None:
    shown_last = {detected[-1].selector: detected[-1] for detected in prices.book.detected.values() if detected}
    for price in listed:
        if price.set_by == "ownership" and price is not shown_last[price.selector]:
            continue  # there is a price for each week of measured energy; only the newest is shown
        start = f"where none is set, {since(price.from_ts, now_ts)}"
        echo(f"{start:24} {per_hour(price):>14}  {price.selector}  ({price.note})")


@click.command("offers", short_help="Show list prices, their age and source, and which are missing.")
@provider_option
@click.option("--accelerator", metavar="NAME", help="Accelerator of the catalog, such as L40S, or CPU.")
@click.option("--region", help="Region of the provider.")
@click.option("--purchase", help="on_demand, spot, reserved_1y, reserved_3y or capacity_block.")
@db_option
@json_option
def show_offers(
    database: Database,
    provider: str | None,
    accelerator: str | None,
    region: str | None,
    purchase: str | None,
    as_json: bool,
) -> None:
    """Show list prices of instances in force, the catalog's and imported ones, less discounts in force: cheapest
    device-hour first, each with its date and source. Prices that no dated list states follow, with who states them."""
    from pertoken.catalog.coverage import unpriced_offers
    from pertoken.catalog.offers import ANYWHERE, newest
    from pertoken.costs.prices.stored import market_of

    _, where = database.located()
    now_s = int(time.time())
    market = market_of(price_store(where), now_ts=now_s)
    name = _accelerator(accelerator, [*(device.name for device in market.accelerators)])
    kind = None if purchase is None else _purchase(purchase)
    house = None if provider is None else provider.strip().lower()
    offers = sorted(
        (
            offer
            for offer in newest(market.all_offers)
            if house in (None, offer.provider)
            and name in (None, offer.accelerator)
            and kind in (None, offer.purchase)
            and (region is None or offer.region in (region, ANYWHERE))
        ),
        key=lambda offer: (offer.nano_usd_per_device_hour, offer.key),
    )
    missing = [entry for entry in unpriced_offers() if entry.covers(house, name, kind)]
    today = datetime.fromtimestamp(now_s, UTC).date()
    if as_json:
        listed = [_listed(offer) | {"age_days": offer.age_days(today)} for offer in offers]
        unpriced = [asdict(entry) | {"as_of": entry.as_of.isoformat()} for entry in missing]
        echo_json({"offers": listed, "unpriced": unpriced})
        return
    _lines(offers, missing, today)


def _accelerator(text: str | None, names: Sequence[str]) -> str | None:
    """Return an accelerator by its catalog name, whatever its case. Raises BadInput for an unknown one."""
    from pertoken.catalog.coverage import priced_names

    if text is None:
        return None
    catalog_names = priced_names(names)
    match = next((name for name in catalog_names if name.casefold() == text.strip().casefold()), None)
    if match is None:
        alike = sorted(name for name in catalog_names if text.strip().casefold() in name.casefold()) or sorted(
            catalog_names
        )
        raise BadInput(f"--accelerator {text!r} is none of the catalog; there are {', '.join(alike)}")
    return match


def _purchase(text: str) -> str:
    from pertoken.catalog.offers import PURCHASES

    kind = text.strip().lower().replace("-", "_")
    if kind not in PURCHASES:
        raise BadInput(f"--purchase {text!r} is none; there are {', '.join(PURCHASES)}")
    return kind


def _lines(offers: Sequence[Offer], missing: Sequence[Unpriced], today: date) -> None:
    from pertoken.catalog.coverage import unsupported
    from pertoken.catalog.offers import outdated

    priced_alone = {device.name: device.why for device in unsupported()}
    for offer in offers:
        what = f"{offer.n_devices} x {offer.accelerator}, {offer.purchase.replace('_', '-')}"
        echo(f"{amount(offer.nano_usd_per_hour):>10}/h  {offer.provider} {offer.instance_type} {offer.region} ({what})")
        note = f"; {offer.note}" if offer.note else ""
        echo(f"{'':12}  {offer.as_of}, {offer.age_days(today)} days ago, {offer.confidence}: {offer.source}{note}")
    for name in dict.fromkeys(offer.accelerator for offer in offers):
        if name in priced_alone:
            echo(f"{name} is priced for break-evens, and no rule proposes it: {priced_alone[name]}.")
    if not offers:
        echo("No list price matches.")
    if warning := outdated(offers, today):
        echo(f"{warning}.")
    for entry in missing:
        echo(f"not listed: {_subject(entry)}: {entry.text}")


def _subject(entry: Unpriced) -> str:
    what = ", ".join(entry.accelerators) or "any accelerator"
    purchases = f" {' or '.join(entry.purchases).replace('_', '-')}" if entry.purchases else ""
    return f"{what}{purchases} at {entry.provider or 'any provider'}"


def _listed(offer: Offer) -> dict[str, object]:
    fields = asdict(offer) | {"as_of": offer.as_of.isoformat()}
    del fields["origin"]  # it compares an offer with a deployment
    return fields


MAX_LINES = 10
"""Offers of each kind that are listed; of the others only the number is shown."""


@click.command("import", short_help="Import list prices of instances from a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Write without being asked.")
@db_option
def import_prices(database: Database, file: Path, yes: bool) -> None:
    """Import list prices of instances from FILE, CSV or JSON (a list of objects).

    Its columns: provider, instance_type, accelerator, n_devices, region, purchase (on_demand, spot, reserved_1y,
    reserved_3y or capacity_block), usd_per_hour of the whole instance, as_of (a date), source, and optionally
    confidence (high, medium or low) and note. The difference is shown before anything is written; implausible rows are
    left out with the reason. A changed price counts from now on: past costs do not change.
    """
    from pertoken.costs.prices.offers import OfferList, read_list

    _write(database, lambda market, today: OfferList(read_list(file, market)), yes)


@click.command("update", short_help="Fetch the newest list prices.")
@click.option("--yes", is_flag=True, help="Write without being asked.")
@db_option
def update_prices(database: Database, yes: bool) -> None:
    """Fetch the newest list prices of AWS, Azure, Google Cloud, Lambda, Nebius, OCI, RunPod and Verda.

    Needs network access and the extra `prices`: the package gpuhunt, which publishes lists every day. New, risen,
    fallen and refused prices, and those gone from the lists, are shown before anything is written, as for `import`;
    either all are written or none.
    """
    _write(database, fetched, yes)


def fetched(market: Market, today: date) -> OfferList:
    """Return the newest public lists; print the gaps: offers left out, and lists that failed."""
    from pertoken.costs.prices.offers import OfferList, fetch

    with Progress("Fetching price lists"):
        newest = fetch(market, today)
    for reason, count in sorted(newest.left_out.items()):
        echo(f"{count} offers left out: {reason}.")
    if newest.missing:
        missing = ", ".join(newest.missing)
        echo(f"The lists of {missing} could not be fetched: their known prices stay; try again later.", err=True)
    return OfferList(newest.offers, frozenset(offer.provider for offer in newest.offers))


def _write(database: Database, read: Callable[[Market, date], OfferList], yes: bool) -> None:
    """Show the changes of a list, ask, and store it; start again if another list is stored meanwhile.

    Raises BadInput for a list that cannot be read, and without a terminal to ask at.
    """
    from pertoken.catalog.market import load_market
    from pertoken.costs.prices.offers import difference
    from pertoken.costs.prices.stored import offers_imported
    from pertoken.migrations import upgrade
    from pertoken.store import repository

    _, where = database.located()
    minute_ts = int(time.time()) // 60 * 60
    today = datetime.fromtimestamp(minute_ts, UTC).date()
    upgrade(where, "advice")  # refuses an unusable database before a list is fetched
    newest = read(load_market(), today)
    advice = repository.AdviceRepository(where)
    while True:
        imported = offers_imported(price_store(where))
        market = load_market().having(imported)
        changes = difference(newest.offers, market, today, minute_ts, newest.complete)
        _show(changes)
        if not changes.written:
            echo("Nothing to write.")
            return
        if not yes:
            n = len(changes.written)
            unasked = f"{n} offers would be written, as shown: nothing was; pass --yes to do it"
            confirm(f"Write {n} offers?", unasked, "nothing was written")
        setting = {"set_ts": minute_ts, "set_by": getpass.getuser()}
        rows = [asdict(offer) | {"as_of": offer.as_of.isoformat()} | setting for offer in changes.written]
        try:
            with advice.writing() as connection:
                repository.add_offers(connection, rows, read_seq=len(imported))
        except repository.PricesChanged:
            echo("Another person imported prices meanwhile; starting again.", err=True)
            continue
        echo(f"{len(rows)} offers written. Past costs stay as they are: changed prices count from now on.")
        return


def _show(changes: Difference) -> None:
    risen = [pair for pair in changes.changed if _ratio(*pair) > 1]
    fallen = [pair for pair in changes.changed if _ratio(*pair) <= 1]
    gone = f", {len(changes.gone)} gone from the lists" if changes.gone else ""
    echo(
        f"{len(changes.new)} new offers, {len(risen)} risen, {len(fallen)} fallen, {len(changes.confirmed)} unchanged "
        f"with a later date, {changes.outdated} not newer than the known ones, {len(changes.refused)} refused{gone}."
    )
    _offer_lines("new", [f"{_named(offer)} {_usd(offer)}" for offer in changes.new])
    for word, pairs in (("risen", risen), ("fallen", fallen)):
        largest = sorted(pairs, key=lambda pair: -abs(_ratio(*pair) - 1))
        _offer_lines(
            word, [f"{_named(old)} {_usd(old)} → {_usd(new)} ({_ratio(old, new) - 1:+.0%})" for old, new in largest]
        )
    _offer_lines(
        "refused", [f"{_named(refusal.offer)} {_usd(refusal.offer)}: {refusal.reason}" for refusal in changes.refused]
    )
    _offer_lines("gone", [f"{_named(offer)} {_usd(offer)} of {offer.as_of}, which stays" for offer in changes.gone])


def _offer_lines(what: str, lines: Sequence[str]) -> None:
    for line in lines[:MAX_LINES]:
        echo(f"{what:8} {line}")
    if len(lines) > MAX_LINES:
        echo(f"{what:8} and {len(lines) - MAX_LINES} more")


def _named(offer: Offer) -> str:
    purchase = offer.purchase.replace("_", "-")
    return f"{offer.provider} {offer.instance_type} ({offer.n_devices} x {offer.accelerator}) {offer.region} {purchase}"


def _usd(offer: Offer) -> str:
    return f"{amount(offer.nano_usd_per_hour)}/h"


def _ratio(old: Offer, new: Offer) -> float:
    return new.nano_usd_per_device_hour / max(1, old.nano_usd_per_device_hour)
