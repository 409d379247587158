"""Limits of the catalog's prices: accelerators that have prices alone, and prices that no dated public list states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from statistics import median

from pertoken.catalog.offers import CONFIDENCES, PURCHASES, RESERVED_YEARS, Offer, OfferKey, newest, toml_table
from pertoken.units import NANO_USD

CPU = "CPU"
"""Accelerator of an instance without any: its offer prices the CPUs of a host together."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Accelerator with list prices for break-evens, which no rule proposes."""

    name: str
    vendor: str
    why: str
    source: str
    as_of: date


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Offers that no dated public list states, and who does."""

    why: str
    ask: str
    """Page or command that states the price."""
    as_of: date
    provider: str | None = None
    """None: any."""
    accelerators: tuple[str, ...] = ()
    """Empty: any."""
    purchases: tuple[str, ...] = ()
    """Empty: any."""

    def covers(self, provider: str | None, accelerator: str | None, purchase: str | None) -> bool:
        """Return whether it is about such an offer; None stands for any."""
        return (
            (None in (provider, self.provider) or provider == self.provider)
            and (accelerator is None or not self.accelerators or accelerator in self.accelerators)
            and (purchase is None or not self.purchases or purchase in self.purchases)
        )

    @property
    def text(self) -> str:
        """The reason and where to ask, as a refusal states them."""
        return f"{self.why} ({self.as_of}); ask: {self.ask}"


@cache
def unsupported() -> tuple[Unsupported, ...]:
    """Return the accelerators that have prices alone."""
    return tuple(Unsupported(**row) for row in toml_table("coverage.toml")["unsupported"])


def priced_names(accelerators: Iterable[str]) -> frozenset[str]:
    """Return the names that an offer may be of: accelerators, those that have prices alone, and `CPU`."""
    return frozenset((CPU, *accelerators, *(device.name for device in unsupported())))


@cache
def unpriced_offers() -> tuple[Unpriced, ...]:
    """Return the offers that have no row, most exact first as listed."""
    return tuple(Unpriced(**row) for row in toml_table("coverage.toml")["unpriced"])


def unpriced(provider: str, accelerator: str, purchase: str) -> Unpriced | None:
    """Return why an offer has no row; None where the catalog states nothing about it."""
    return next((entry for entry in unpriced_offers() if entry.covers(provider, accelerator, purchase)), None)


MIN_USD, MAX_USD = 0.05, 50.0
"""Plausible dollars per device-hour: from an old T4 on spot to twice the highest listed price."""
MIN_REGIONS = 3
"""Minimum number of other regions for a comparison between regions."""
MIN_REGION_SHARE = 0.6
"""Minimum share of the median of other regions. An on-demand price below it is probably a committed one: regions of one
provider differ by up to 0.72 (AWS P5: 55.04 to 75.96), a 3-year commitment is 0.43 to 0.5 of on-demand."""


@dataclass(frozen=True, slots=True)
class ImplausibleOffer:
    """An implausible offer, with the reason."""

    offer: Offer
    reason: str


def faults(
    offers: Sequence[Offer], today: date, devices: Mapping[tuple[str, str], int], accelerators: Iterable[str]
) -> tuple[ImplausibleOffer, ...]:
    """Return the implausible offers of one list, in order, each with its first reason.

    `devices` are the known numbers of accelerators by provider and instance type. `accelerators` are the valid names.
    Offers are compared with the newest on-demand prices. Two dates of one offer are its history, no contradiction.
    """
    known_accelerators = frozenset(accelerators)
    prices_by_day: dict[tuple[OfferKey, date], set[int]] = defaultdict(set)
    by_instance: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for offer in offers:
        prices_by_day[offer.key, offer.as_of].add(offer.nano_usd_per_device_hour)
    for offer in newest(offers):
        if offer.purchase == "on_demand":
            by_instance[offer.provider, offer.instance_type][offer.region] = offer.nano_usd_per_device_hour
    implausible = []
    for offer in offers:
        reason = (
            _invalid_fields(offer, today, known_accelerators, devices.get((offer.provider, offer.instance_type)))
            or _contradicted(prices_by_day[offer.key, offer.as_of])
            or _against_on_demand(offer, by_instance[offer.provider, offer.instance_type])
            or _against_regions(offer, by_instance[offer.provider, offer.instance_type])
        )
        if reason is not None:
            implausible.append(ImplausibleOffer(offer, reason))
    return tuple(implausible)


def _invalid_fields(offer: Offer, today: date, known_accelerators: frozenset[str], devices: int | None) -> str | None:
    usd = offer.nano_usd_per_device_hour / NANO_USD
    if offer.accelerator not in known_accelerators:
        return f"{offer.accelerator} is not an accelerator of the catalog"
    if offer.purchase not in PURCHASES:
        return f"{offer.purchase} is not a purchase: use one of {', '.join(PURCHASES)}"
    if offer.confidence not in CONFIDENCES:
        return f"{offer.confidence} is not a confidence: use one of {', '.join(CONFIDENCES)}"
    if not offer.source.strip():
        return "it names no source"
    if offer.as_of > today:
        return f"it is dated {offer.as_of}, after today"
    if not MIN_USD <= usd <= MAX_USD:
        return f"${usd:,.4g} for a device-hour is not between ${MIN_USD:g} and ${MAX_USD:g}"
    if devices is not None and offer.n_devices != devices:
        return f"it lists {offer.n_devices} devices, and a {offer.instance_type} has {devices}"
    return None


def _contradicted(prices: set[int]) -> str | None:
    if len(prices) < 2:
        return None
    shown = " and ".join(f"${price / NANO_USD:,.4g}" for price in sorted(prices))
    return f"the list contradicts itself: {shown} for a device-hour of the same offer"


def _against_on_demand(offer: Offer, on_demand: Mapping[str, int]) -> str | None:
    if offer.purchase != "spot" and offer.purchase not in RESERVED_YEARS:
        return None
    on_demand_price = on_demand.get(offer.region)
    if on_demand_price is None or offer.nano_usd_per_device_hour < on_demand_price:
        return None
    kind = offer.purchase.replace("_", " ")
    if offer.nano_usd_per_device_hour == on_demand_price:
        return f"{kind} costs as much as on-demand there (${on_demand_price / NANO_USD:,.4g}): no discount is offered"
    return f"{kind} costs more than on-demand there (${on_demand_price / NANO_USD:,.4g})"


def _against_regions(offer: Offer, on_demand: Mapping[str, int]) -> str | None:
    if offer.purchase != "on_demand":
        return None
    others = [price for region, price in on_demand.items() if region != offer.region]
    if len(others) < MIN_REGIONS:
        return None
    share = offer.nano_usd_per_device_hour / median(others)
    if share >= MIN_REGION_SHARE:
        return None
    return f"on-demand at {share:.2f} of the median of {len(others)} other regions: it is a committed price"
