"""Commands `pertoken prices show` and `pertoken prices offers`: prices set, and list prices with their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pertoken.cli.options import echo, echo_json, settings_of
from pertoken.cli.prices.words import named, no_longer, per_hour, period, set_note, since

if TYPE_CHECKING:
    from datetime import date

    from pertoken.catalog.coverage import Unpriced
    from pertoken.catalog.offers import Offer
    from pertoken.costs.prices.book import Price
    from pertoken.costs.repricing import Prices


def show(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show all prices and discounts ever set, and list prices of detected instances."""
    import time
    from dataclasses import asdict

    from pertoken.costs.repricing import read_prices
    from pertoken.store.connect.location import locate

    settings = settings_of(config_file, db=db)
    now = int(time.time())
    known = read_prices(locate(settings.db, settings.advice), now)
    listed = [price for detected in known.book.detected.values() for price in detected]
    if as_json:
        devices = {
            price.selector: [device.uuid for device in known.named(price.selector)] for price in known.book.prices
        }
        shown = [_plain(price) | {"devices": devices[price.selector]} for price in known.book.prices]
        discounts = [asdict(discount) for discount in known.discounts.all]
        echo_json([*shown, *map(_plain, listed), *discounts])
        return
    if not known.book.prices and not listed and not known.discounts.all:
        echo("No price was set yet. `pertoken prices set DOLLARS --for DEVICE` sets one.")
    for price in known.book.prices:
        in_force = period(price.from_ts, price.until_ts, now)
        echo(f"{in_force:24} {per_hour(price):>14}  {price.selector}  {set_note(price)}")
        echo(f"{'':24} {named(known, price.selector)}")
    for discount in known.discounts.all:
        in_force = period(discount.from_ts, discount.until_ts, now)
        echo(f"{in_force:24} {discount.percent:>14}  list prices of {discount.provider}  {set_note(discount)}")
    _show_detected(known, listed, now)
    for selector in dict.fromkeys(price.selector for price in known.book.prices):
        if lost := known.lost(selector):
            echo(no_longer(selector, lost), err=True)


def _plain(price: Price) -> dict[str, Any]:
    from dataclasses import asdict

    entered = None if price.entered is None else {name: str(value) for name, value in asdict(price.entered).items()}
    return asdict(price) | {"entered": entered, "offer": None if price.offer is None else _listed(price.offer)}


def _show_detected(known: Prices, listed: Sequence[Price], now: int) -> None:
    shown_last = {detected[-1].selector: detected[-1] for detected in known.book.detected.values() if detected}
    for price in listed:
        if price.set_by == "ownership" and price is not shown_last[price.selector]:
            continue  # there is a price for each week of measured energy; only the newest is shown
        start = f"where none is set, {since(price.from_ts, now)}"
        echo(f"{start:24} {per_hour(price):>14}  {price.selector}  ({price.note})")


def show_listed(
    config_file: str | None,
    db: str | None,
    provider: str | None,
    accelerator: str | None,
    region: str | None,
    purchase: str | None,
    as_json: bool,
) -> None:
    """Show the list prices that match, cheapest first, and matching prices that no dated list states."""
    import time
    from datetime import UTC, datetime

    from pertoken.catalog.coverage import unpriced_offers
    from pertoken.catalog.offers import ANYWHERE, newest
    from pertoken.costs.prices.stored import market_of
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import Store, open_advice, reading

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    now = int(time.time())
    market = market_of(Store(where, reading(where, "telemetry"), open_advice(where)), now_ts=now)
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
    today = datetime.fromtimestamp(now, UTC).date()
    if as_json:
        echo_json({"offers": [_offer(offer, today) for offer in offers], "unpriced": [_missing(e) for e in missing]})
        return
    _lines(offers, missing, today)


def _accelerator(text: str | None, names: Sequence[str]) -> str | None:
    """Return an accelerator by its catalog name, whatever its case. Raises BadInput for an unknown one."""
    from pertoken.catalog.coverage import priced_names
    from pertoken.errors import BadInput

    if text is None:
        return None
    known = priced_names(names)
    match = next((name for name in known if name.casefold() == text.strip().casefold()), None)
    if match is None:
        alike = sorted(name for name in known if text.strip().casefold() in name.casefold()) or sorted(known)
        raise BadInput(f"--accelerator {text!r} is none of the catalog; there are {', '.join(alike)}")
    return match


def _purchase(text: str) -> str:
    from pertoken.catalog.offers import PURCHASES
    from pertoken.errors import BadInput

    kind = text.strip().lower().replace("-", "_")
    if kind not in PURCHASES:
        raise BadInput(f"--purchase {text!r} is none; there are {', '.join(PURCHASES)}")
    return kind


def _lines(offers: Sequence[Offer], missing: Sequence[Unpriced], today: date) -> None:
    from pertoken.catalog.coverage import unsupported
    from pertoken.catalog.offers import outdated
    from pertoken.text.amounts import amount

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


def _offer(offer: Offer, today: date) -> dict[str, Any]:
    return _listed(offer) | {"age_days": offer.age_days(today)}


def _listed(offer: Offer) -> dict[str, Any]:
    from dataclasses import asdict

    fields = asdict(offer) | {"as_of": offer.as_of.isoformat()}
    del fields["origin"]  # it compares an offer with a deployment
    return fields


def _missing(entry: Unpriced) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(entry) | {"as_of": entry.as_of.isoformat()}
