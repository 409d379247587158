"""Listed prices: instances by the hour and tokens of serverless APIs, each with its source, date and confidence."""

import csv
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any

from pertoken.units import NANO_USD

ANYWHERE = "any"
"""Region of an offer that costs the same everywhere."""
PURCHASES = ("on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block")
RESERVED_YEARS: Mapping[str, int] = {"reserved_1y": 1, "reserved_3y": 3}
"""Purchases that commit to a term, and its years."""
CONFIDENCES = ("high", "medium", "low")
"""High: the provider's own feed. Medium: a copy of it, or several consistent sources. Low: unverified or derived."""

REFRESH_COMMAND = "pertoken prices update"
REFRESH_AFTER_DAYS = 90
"""Age at which list prices should be fetched again. A judgement: cloud lists moved by a third to a half in a year."""

OfferKey = tuple[str, str, str, str]
"""Provider, instance type, region and purchase; a newer offer with the same key replaces an older one."""


class Origin(IntEnum):
    """Origin of a price relative to a deployment, the most certain first."""

    SET = 0
    """A person set it."""
    BILL = 1
    """A reconciled bill holds it."""
    OWN_INSTANCE = 2
    """Listed for the instance type, provider and region that it runs on."""
    OWN_REGION = 3
    OWN_PROVIDER = 4
    """Listed in another region of its provider."""
    OTHER_PROVIDER = 5

    @property
    def listed(self) -> bool:
        """Whether it is a list price, which may be out of date."""
        return self > Origin.BILL


@dataclass(frozen=True, slots=True)
class Offer:
    """A price of an instance; `nano_usd_per_device_hour` is its share for one device."""

    provider: str
    instance_type: str
    accelerator: str
    n_devices: int
    region: str
    purchase: str
    """One of `PURCHASES`."""
    nano_usd_per_device_hour: int
    as_of: date
    """Earliest possible date of publication."""
    source: str
    confidence: str = "high"
    """One of `CONFIDENCES`."""
    note: str = ""
    from_ts: int | None = None
    """Start of its validity, epoch seconds; None: the start of `as_of`, UTC."""
    origin: Origin | None = None
    """None: listed, and not compared with a deployment yet."""

    @property
    def key(self) -> OfferKey:
        """The key of the offer, without its price."""
        return self.provider, self.instance_type, self.region, self.purchase

    @property
    def nano_usd_per_hour(self) -> int:
        """Price of the whole instance."""
        return self.nano_usd_per_device_hour * self.n_devices

    def instances_for(self, replicas: int, ranks: int) -> int:
        """Return the whole instances that replicas of `ranks` devices take; a wider replica joins several."""
        return math.ceil(replicas / max(1, self.n_devices // ranks)) * math.ceil(ranks / self.n_devices)

    def age_days(self, today: date) -> int:
        """Return the maximum number of days since publication."""
        return (today - self.as_of).days


@dataclass(frozen=True, slots=True)
class TokenOffer:
    """Listed prices of a serverless API for one model, nano-USD per Mtok."""

    provider: str
    model: str
    """Catalog name."""
    input: int
    cached_input: int | None
    """Price of prompt tokens that hit the provider's cache; None: not listed."""
    output: int
    as_of: date
    source: str
    confidence: str
    note: str = ""

    def age_days(self, today: date) -> int:
        """Return the maximum number of days since publication."""
        return (today - self.as_of).days


def marks(offers: Iterable[Offer | TokenOffer], today: date, stale_after_days: int) -> tuple[str, ...]:
    """Return warnings for a figure that is based on these offers: stale prices, low confidence."""
    used = tuple(offers)
    days = max((offer.age_days(today) for offer in used), default=0)
    lines = [f"stale: listed up to {days} days ago, check before acting"] if days > stale_after_days else []
    if any(offer.confidence == "low" for offer in used):
        lines.append("low confidence: check the price with the provider")
    return tuple(lines)


def newest(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return the newest offer of each key; of the same date, the later in sequence. What is paid replaces a list."""
    newest_by_key: dict[OfferKey, Offer] = {}
    for offer in offers:
        newest_known = newest_by_key.get(offer.key)
        if newest_known is None or (offer.origin is not None, offer.as_of) >= (
            newest_known.origin is not None,
            newest_known.as_of,
        ):
            newest_by_key[offer.key] = offer
    return tuple(newest_by_key.values())


def per_device(usd_per_hour: Decimal, n_devices: int) -> int:
    """Return the share of one device in the price of an instance, nano-USD per hour."""
    return int((usd_per_hour * NANO_USD / n_devices).to_integral_value(ROUND_HALF_EVEN))


@cache
def listed_offers() -> tuple[Offer, ...]:
    """Return the catalog's offers of instances."""
    return tuple(
        Offer(
            provider=row["provider"],
            instance_type=row["instance_type"],
            accelerator=row["accelerator"],
            n_devices=int(row["n_devices"]),
            region=row["region"],
            purchase=row["purchase"],
            nano_usd_per_device_hour=per_device(Decimal(row["usd_per_hour"]), int(row["n_devices"])),
            as_of=date.fromisoformat(row["as_of"]),
            source=row["source"],
            confidence=row["confidence"],
            note=row["note"],
        )
        for row in rows("prices.csv")
    )


@cache
def listed_token_offers() -> tuple[TokenOffer, ...]:
    """Return the catalog's token prices."""
    return tuple(
        TokenOffer(
            provider=row["provider"],
            model=row["model"],
            input=_per_mtok(row["usd_per_mtok_input"]),
            cached_input=_per_mtok(row["usd_per_mtok_cached_input"]) if row["usd_per_mtok_cached_input"] else None,
            output=_per_mtok(row["usd_per_mtok_output"]),
            as_of=date.fromisoformat(row["as_of"]),
            source=row["source"],
            confidence=row["confidence"],
            note=row["note"],
        )
        for row in rows("token_prices.csv")
    )


def _per_mtok(usd: str) -> int:
    return int((Decimal(usd) * NANO_USD).to_integral_value(ROUND_HALF_EVEN))


def rows(file: str) -> list[dict[str, str]]:
    """Return the rows of a table of the catalog."""
    with files("pertoken.catalog").joinpath(file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@cache
def toml_table(file: str) -> dict[str, Any]:
    """Return the content of a TOML file of the catalog, with tuples in place of lists."""
    text = files("pertoken.catalog").joinpath(file).read_text(encoding="utf-8")
    return {name: _frozen(value) for name, value in tomllib.loads(text).items()}


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class PriceAges:
    """Days since the publication of list prices."""

    youngest: int
    oldest: int
    count: int

    @property
    def outdated(self) -> bool:
        """Whether none is recent enough to act on."""
        return self.youngest >= REFRESH_AFTER_DAYS

    @property
    def text(self) -> str:
        """The ages as a sentence."""
        days = str(self.oldest) if self.youngest == self.oldest else f"{self.youngest} to {self.oldest}"
        prices = "the list price used is" if self.count == 1 else f"all {self.count} list prices used are"
        return f"{prices} {days} days old"


def ages(offers: Iterable[Offer | TokenOffer], today: date) -> PriceAges | None:
    """Return the ages of the offers that a figure is based on; None without any."""
    days = [offer.age_days(today) for offer in offers]
    return PriceAges(min(days), max(days), len(days)) if days else None


def outdated(offers: Iterable[Offer | TokenOffer], today: date) -> str | None:
    """Return that no offer is recent, and the command that fetches newer ones; None if one is, or without any."""
    offer_ages = ages(offers, today)
    return (
        f"{offer_ages.text}: `{REFRESH_COMMAND}` fetches newer ones"
        if offer_ages is not None and offer_ages.outdated
        else None
    )
