"""List prices of the instances the hosts turned out to be: what is shown until somebody sets the price really paid."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from pertoken.catalog.market import Market, Offer
from pertoken.costs.prices.book import Price


def detected_prices(
    devices: Iterable[Any], hosts: Mapping[int, Any], market: Market, today: date
) -> dict[str, tuple[Price, ...]]:
    """Prices of a device-hour by device UUID, for devices of an instance that the catalog lists.

    Each is in force from the day it was listed on, so that a newer one in a later catalog changes no past costs.
    `devices` are rows of `store.query.read.devices`, `hosts` those of their hosts by id. An instance's price is for its
    accelerators together, so that its CPUs have none of their own. An unknown region or purchase is not guessed.
    """
    found = {}
    known: dict[tuple[str, ...], list[Offer]] = {}
    for row in devices:
        if row.kind != "gpu":
            continue
        host = hosts[row.host_id]
        instance = row.name, host.purchase, host.cloud, host.instance_type, host.region
        if None in instance:
            continue
        if instance not in known:
            known[instance] = _listed(market, *instance)
        if known[instance]:
            found[row.uuid] = tuple(_price(row.uuid, offer, market, today) for offer in known[instance])
    return found


def _listed(market: Market, name: str, purchase: str, *where: str) -> list[Offer]:
    accelerator = market.accelerator(name)
    offers = market.offers(accelerator.name, purchase) if accelerator else ()
    return [each for each in offers if (each.provider, each.instance_type, each.region) == where]


def _price(uuid: str, offer: Offer, market: Market, today: date) -> Price:
    age = offer.age_days(today)
    stale = f"; stale: listed up to {age} days ago" if age > market.stale_after_days else ""
    purchase = offer.purchase.replace("_", "-")
    note = (
        f"list price of {offer.provider} {offer.instance_type} {purchase} in {offer.region}, "
        f"{offer.as_of} ({offer.source}){stale}"
    )
    midnight = datetime.combine(offer.as_of, time(), UTC)
    return Price(
        uuid,
        offer.nano_usd_per_device_hour,
        from_ts=int(midnight.timestamp()),
        set_by="catalog",
        note=note,
        listed=True,
    )
