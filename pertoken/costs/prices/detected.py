"""List prices of detected instances: shown until a person sets the price that is paid."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from pertoken.catalog.coverage import CPU
from pertoken.catalog.market import Market
from pertoken.catalog.offers import ANYWHERE, Offer, marks
from pertoken.costs.prices.book import Price
from pertoken.costs.prices.discounts import Discounts


def detected_prices(
    devices: Iterable[Any],
    hosts: Mapping[int, Any],
    market: Market,
    today: date,
    discounts: Discounts | None = None,
) -> dict[str, tuple[Price, ...]]:
    """Return prices of a device-hour by device UUID, for devices of an instance that is listed.

    Each is in force from the day it was listed on, or from when it was imported, so that a newer one changes no past
    costs.
    `devices` are rows of `store.query.read.devices`, `hosts` those of their hosts by id. An instance's price is for its
    accelerators together, so that its CPUs have none of their own; an instance without accelerators prices its CPUs.
    An unknown region or purchase is not guessed. `discounts` are taken off from their start to their end.
    """
    rows = list(devices)
    with_accelerators = {row.host_id for row in rows if row.kind == "gpu"}
    prices = {}
    known: dict[tuple[str, ...], list[Offer]] = {}
    for row in rows:
        if row.kind != "gpu" and (row.kind != "cpu" or row.host_id in with_accelerators):
            continue
        host = hosts[row.host_id]
        name = CPU if row.kind == "cpu" else row.name
        instance = name, host.purchase, host.cloud, host.instance_type, host.region
        if None in instance:
            continue
        if instance not in known:
            known[instance] = _listed(market, *instance)
        if known[instance]:
            listed = [_price(row.uuid, offer, market, today) for offer in known[instance]]
            prices[row.uuid] = (discounts or Discounts()).on_prices(host.cloud, listed)
    return prices


def _listed(market: Market, name: str, purchase: str, provider: str, instance_type: str, region: str) -> list[Offer]:
    """Return every offer of such an instance, those that a newer one replaces included."""
    accelerator = market.accelerator(name)
    wanted = CPU if name == CPU else accelerator.name if accelerator else None
    return [
        offer
        for offer in market.all_offers
        if (offer.accelerator, offer.purchase, offer.provider, offer.instance_type)
        == (wanted, purchase, provider, instance_type)
        and offer.region in (region, ANYWHERE)
    ]


def _price(uuid: str, offer: Offer, market: Market, today: date) -> Price:
    marked = "".join(f"; {mark}" for mark in marks([offer], today, market.stale_after_days))
    purchase = offer.purchase.replace("_", "-")
    note = (
        f"list price of {offer.provider} {offer.instance_type} {purchase} in {offer.region}, "
        f"{offer.as_of} ({offer.source}){marked}"
    )
    midnight = int(datetime.combine(offer.as_of, datetime.min.time(), UTC).timestamp())
    return Price(
        uuid,
        offer.nano_usd_per_device_hour,
        from_ts=midnight if offer.from_ts is None else offer.from_ts,
        set_by="catalog",
        note=note,
        listed=True,
        offer=offer,
    )
