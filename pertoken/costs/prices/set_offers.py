"""Prices that people set and reconciled bills, as offers beside those of the price lists."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import NamedTuple

from pertoken.catalog.market import MAX_RANKS, Accelerator, Market
from pertoken.catalog.offers import ANYWHERE, Offer, Origin
from pertoken.costs.prices.book import BILLED, Price, PriceBook, Priced
from pertoken.costs.prices.selectors import KINDS, identity, rank
from pertoken.state.fleet import Fleet, Host
from pertoken.units import format_utc

ORDERABLE = (None, "on_demand", "spot")
"""Purchases of hosts of which another one may be ordered at the same price."""


class _Rental(NamedTuple):
    """Provider, region and purchase that a fleet rents at."""

    provider: str
    region: str
    purchase: str


def set_offers(
    fleet: Fleet, devices: Mapping[int, Priced], prices: PriceBook, market: Market, now_ts: int
) -> tuple[Offer, ...]:
    """Return what people set and what bills state, as offers at the providers and regions of a fleet.

    `devices` are those of the fleet by id. A price set by the name of an accelerator is for all its instances; one of a
    bill, or of the CPUs of a host, for the kind of instance that has it. A price of all devices (`gpu`) or of one
    device is for what the fleet has, and what an owned device costs is no price at which another one can be rented.
    """
    return (*_billed(fleet, devices, prices, market, now_ts), *_named(fleet, devices, prices, market, now_ts))


def _billed(
    fleet: Fleet, devices: Mapping[int, Priced], prices: PriceBook, market: Market, now_ts: int
) -> Iterator[Offer]:
    for host in fleet.hosts:
        deciding = fleet.accelerators_on.get(host.host_id, frozenset())
        payers = [device for device in fleet.devices_on(host) if device.device_id in deciding]
        known = [prices.at(devices[payer.device_id], now_ts) for payer in payers if payer.device_id in devices]
        on_cpus = any(payer.kind == "cpu" and payer.accelerator for payer in payers)
        billed = [price for price in known if price and (price.set_by == BILLED or (on_cpus and not price.listed))]
        rental, instance_type = _rental(host, market), host.placement.instance_type
        if not billed or len(billed) < len(payers) or rental is None or instance_type is None:
            continue
        is_billed = billed[0].set_by == BILLED
        yield Offer(
            provider=rental.provider,
            instance_type=instance_type,
            accelerator=host.placement.accelerator or payers[0].accelerator or "",
            n_devices=host.placement.devices_per_instance or len(billed),
            region=rental.region,
            purchase=rental.purchase,
            nano_usd_per_device_hour=round(sum(price.nano_usd_per_device_hour or 0 for price in billed) / len(billed)),
            as_of=_day(max(price.from_ts or price.set_ts or now_ts for price in billed)),
            source=f"{'the reconciled bill' if is_billed else 'the price that is set'} of {host.name}",
            origin=Origin.BILL if is_billed else Origin.SET,
        )


def _named(
    fleet: Fleet, devices: Mapping[int, Priced], prices: PriceBook, market: Market, now_ts: int
) -> Iterator[Offer]:
    rentals: defaultdict[str | None, set[_Rental]] = defaultdict(set)
    for host in fleet.hosts:
        rental = _rental(host, market)
        rentals[host.placement.accelerator].update([rental] if rental is not None else [])
    on_demand = {rental._replace(purchase="on_demand") for rented in rentals.values() for rental in rented}
    for accelerator in market.accelerators:
        price = _price_by_name(accelerator, devices.values(), prices, market, now_ts)
        if price is None or price.nano_usd_per_device_hour is None:
            continue
        by = f" by {price.set_by}" if price.set_by else ""
        entered = "" if price.entered is None else f", entered as {price.entered.text}"
        end = "" if price.until_ts is None else f"; it ends at {format_utc(price.until_ts)}"
        offer = Offer(
            provider="",
            instance_type="",
            accelerator=accelerator.name,
            n_devices=1,
            region=ANYWHERE,
            purchase="on_demand",
            nano_usd_per_device_hour=price.nano_usd_per_device_hour,
            as_of=_day(price.from_ts or price.set_ts or now_ts),
            source=f"price set for {price.selector}{by}{entered}{end}",
            origin=Origin.SET,
        )
        for rental in sorted(rentals.get(accelerator.name, on_demand)):
            yield from _of_sizes(offer, rental, market)


def _of_sizes(offer: Offer, rental: _Rental, market: Market) -> Iterator[Offer]:
    """Yield an offer for each kind of instance that is listed there; where none is, for each common size."""
    priced = replace(offer, provider=rental.provider, region=rental.region, purchase=rental.purchase)
    listed = [
        known
        for known in market.offers(offer.accelerator, rental.purchase)
        if known.provider == rental.provider and known.region in (rental.region, ANYWHERE)
    ]
    for known in listed:
        yield replace(priced, instance_type=known.instance_type, n_devices=known.n_devices, region=known.region)
    size = 1
    while not listed and size <= MAX_RANKS:
        yield replace(priced, instance_type=f"{size}-device {offer.accelerator}", n_devices=size)
        size *= 2


def _price_by_name(
    accelerator: Accelerator, devices: Iterable[Priced], prices: PriceBook, market: Market, now_ts: int
) -> Price | None:
    """Return the price that a person set for an accelerator by its name; None if none is set, or only for others.

    A name that names recorded devices is of these alone: `H100` is no price of an H100 NVL where an H100 SXM5 runs.
    """
    price = prices.at(Priced("gpu", accelerator.reported_names[0], ""), now_ts)
    if price is None or price.listed or price.set_by == BILLED or identity(price.selector) in KINDS:
        return None
    named = {market.accelerator(device.name) for device in devices if rank(price.selector, device)}
    return price if not named or accelerator in named else None


def _rental(host: Host, market: Market) -> _Rental | None:
    """Return where a host is rented; None of one that is owned or reserved."""
    placement = host.placement
    if placement.purchase not in ORDERABLE:
        return None
    provider = placement.provider or market.provider or ""
    return _Rental(provider, placement.region or ANYWHERE, placement.purchase or "on_demand")


def _day(ts: int) -> date:
    return datetime.fromtimestamp(ts, UTC).date()
