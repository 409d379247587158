"""Prices of a device-hour by effective date, so that a new price never changes past costs.

Front door: `PriceBook` and `Discounts`; `identity` and `rank` match selectors with devices.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from typing import NamedTuple, Protocol

from pertoken.catalog.market import Accelerator, load_market
from pertoken.catalog.offers import Offer
from pertoken.costs.ledger import divide
from pertoken.units import NANO_USD

KINDS = ("cpu", "gpu")
"""Kinds of devices, each also a selector."""
EXACT = 1_000_000
"""Rank of a selector that is the device's UUID: above the rank of any name."""
_WORD = re.compile(r"[^\W_]+")


BILLED = "billed"
"""`set_by` of a price that `pertoken reconcile` computed from an invoice."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price that a person set or withdrew. `selector`: `cpu`, `gpu`, words of a device's name, or a device's UUID."""

    selector: str
    nano_usd_per_device_hour: int | None
    """None: from then on the selector has no price."""
    from_ts: int
    """In force from this instant on; 0: from the beginning."""
    set_ts: int = 0
    set_by: str = ""
    note: str | None = None
    listed: bool = False
    """Whether it is a list price of a detected instance, which no person set."""
    offer: Offer | None = None
    """Offer with this list price."""
    seq: int = 0
    """Order of setting, which decides between prices in force from the same instant."""
    until_ts: int | None = None
    """End, exclusive: then the earlier price applies again. None: until another price is set."""
    entered: Entered | None = None
    """Amount in another currency, as it was entered; None: dollars."""

    def in_force(self, ts: int) -> bool:
        """Return whether the price has begun and not ended."""
        return self.from_ts <= ts and (self.until_ts is None or ts < self.until_ts)


class MatchedDevice(Protocol):
    """Fields of a device that a selector is matched with."""

    @property
    def kind(self) -> str:
        """`gpu` or `cpu`."""

    @property
    def name(self) -> str:
        """As its driver reports it."""

    @property
    def uuid(self) -> str:
        """As its driver reports it."""


class PaidDevice(MatchedDevice, Protocol):
    """Device that the price book finds a price for: a `PriceSubject`, or a row of the store."""

    @property
    def parent_id(self) -> int | None:
        """The GPU a MIG device is paid for with."""


class PriceSubject(NamedTuple):
    """Device as a value, to find its price."""

    kind: str
    name: str
    uuid: str
    parent_id: int | None = None
    """The GPU a MIG device is paid for with."""


class PriceBook:
    """All prices ever set. Of those in force, the most exact selector wins, then the latest start, then the last set.

    `detected`: list prices by device UUID, each from its day of listing. They apply only where no set price does.
    """

    def __init__(self, prices: Iterable[Price], detected: Mapping[str, Sequence[Price]] | None = None) -> None:
        self.detected = {
            uuid: tuple(sorted(prices, key=lambda price: price.from_ts)) for uuid, prices in (detected or {}).items()
        }
        self.prices = tuple(sorted(prices, key=in_order))
        self._by_selector: dict[str, list[Price]] = {}
        for price in self.prices:
            self._by_selector.setdefault(identity(price.selector), []).append(price)
        self._selectors = {price.selector.strip().casefold() for price in self.prices} | {
            uuid.casefold() for uuid in self.detected
        }
        self._price_by_key: dict[tuple[str, str, str, int], Price | None] = {}

    def alone(self, uuid: str) -> bool:
        """Return whether a price names this UUID; all other devices of one kind and name have the same price."""
        return uuid.casefold() in self._selectors

    def at(self, device: PaidDevice, ts: int) -> Price | None:
        """Return the price of a device at an instant; None if none is set or listed."""
        key = device.kind, device.name, device.uuid if self.alone(device.uuid) else "", ts
        if key not in self._price_by_key:  # a fleet has thousands of devices with few names
            self._price_by_key[key] = self._find(device, ts)
        return self._price_by_key[key]

    def rate(self, device: PaidDevice, ts: int) -> int | None:
        """Return the nano-USD per hour of a device at an instant; None if not known."""
        price = self.at(device, ts)
        return None if price is None else price.nano_usd_per_device_hour

    def each_at(self, devices: Iterable[PaidDevice], ts: int) -> list[Price | None]:
        """Return the price of each device at an instant, in their order; None where none is set or listed."""
        return [self.at(device, ts) for device in devices]

    def rates(self, devices: Iterable[PaidDevice], ts: int) -> list[int | None]:
        """Return the nano-USD per hour of each device at an instant, in their order; None where not known."""
        return [None if price is None else price.nano_usd_per_device_hour for price in self.each_at(devices, ts)]

    def applies(self, device: PaidDevice) -> bool:
        """Return whether a device has a price at any time, set or listed."""
        return device.uuid in self.detected or any(
            price.nano_usd_per_device_hour is not None and rank(price.selector, device) for price in self.prices
        )

    def of_selector(self, selector: str) -> Sequence[Price]:
        """Return the prices set for a selector in any spelling, in their order."""
        return self._by_selector.get(identity(selector), ())

    def _find(self, device: PaidDevice, ts: int) -> Price | None:
        """Return the set price that wins, else the latest list price."""
        best_price: Price | None = None
        best_order = 0, (0, 0, 0)
        for prices in self._by_selector.values():
            price = next((price for price in reversed(prices) if price.in_force(ts)), None)
            if price is None or price.nano_usd_per_device_hour is None:
                continue
            order = rank(price.selector, device), in_order(price)
            if order[0] and (best_price is None or order > best_order):
                best_price, best_order = price, order
        if best_price is not None:
            return best_price
        return next((price for price in reversed(self.detected.get(device.uuid, ())) if price.from_ts <= ts), None)

    def changes(self) -> tuple[int, ...]:
        """Return every instant at which a price began, ended, or was withdrawn."""
        listed = (price for prices in self.detected.values() for price in prices)
        instants = {ts for price in (*self.prices, *listed) for ts in (price.from_ts, price.until_ts) if ts}
        return tuple(sorted(instants))


def in_order(price: Price) -> tuple[int, int, int]:
    """Return the sort key of prices in force, the winner last: by start, then by order of setting."""
    return price.from_ts, price.seq, price.set_ts


WHOLE = 1_000_000
"""A discount of 100 %, in millionths."""


@dataclass(frozen=True, slots=True)
class Discount:
    """Share of a provider's list prices that its customer does not pay, or the withdrawal of such a discount."""

    provider: str
    millionths: int | None
    """Share of the list price; None: no discount from then on."""
    from_ts: int
    """In force from this instant on; 0: from the beginning."""
    until_ts: int | None = None
    """End, exclusive: then the earlier discount applies again. None: until another is set."""
    set_ts: int = 0
    set_by: str = ""
    note: str | None = None
    seq: int = 0
    """Order of setting, which decides between discounts in force from the same instant."""

    @property
    def percent(self) -> str:
        """The discount as text, such as `30 %`."""
        return "no discount" if self.millionths is None else f"{self.millionths / 10_000:g} %"

    def in_force(self, provider: str, ts: int) -> bool:
        """Return whether the discount is of a provider, has begun and not ended."""
        return self.provider == provider and self.from_ts <= ts and (self.until_ts is None or ts < self.until_ts)

    def off(self, nano_usd: int) -> int:
        """Return a list price less the discount."""
        return divide(nano_usd * (WHOLE - (self.millionths or 0)), WHOLE)


class Discounts:
    """All discounts ever set. Of those in force, the latest start wins, then the last set."""

    def __init__(self, discounts: Iterable[Discount] = ()) -> None:
        self.all = tuple(sorted(discounts, key=lambda discount: (discount.from_ts, discount.seq)))

    def having(self, discounts: Iterable[Discount]) -> Discounts:
        """Return these discounts and further ones, which count as set later."""
        return Discounts((*self.all, *discounts))

    def at(self, provider: str, ts: int) -> Discount | None:
        """Return the discount in force for a provider at an instant; None without one."""
        in_force = (discount for discount in reversed(self.all) if discount.in_force(provider, ts))
        latest = next(in_force, None)
        return None if latest is None or latest.millionths is None else latest

    def on_prices(self, provider: str, listed: Sequence[Price]) -> tuple[Price, ...]:
        """Return discounted list prices of a device: one from each change of a price or of a discount."""
        prices = sorted(listed, key=lambda price: price.from_ts)
        if not prices or all(discount.provider != provider for discount in self.all):
            return tuple(prices)
        starts = {price.from_ts for price in prices}
        changes = {ts for ts in self._changes(provider) if ts > prices[0].from_ts}
        return tuple(self._on_price(provider, prices, ts) for ts in sorted(starts | changes))

    def on_offers(self, offers: Iterable[Offer], ts: int) -> tuple[Offer, ...]:
        """Return offers with the discounts in force at an instant, each with a note."""
        return tuple(self._on_offer(offer, ts) for offer in offers) if self.all else tuple(offers)

    def _changes(self, provider: str) -> Iterator[int]:
        for discount in self.all:
            if discount.provider == provider:
                yield discount.from_ts
                if discount.until_ts is not None:
                    yield discount.until_ts

    def _on_price(self, provider: str, prices: Sequence[Price], ts: int) -> Price:
        listed = next(price for price in reversed(prices) if price.from_ts <= ts)
        discount = self.at(provider, ts)
        if discount is None or listed.nano_usd_per_device_hour is None:
            return replace(listed, from_ts=ts)
        note = f"{listed.note}; {_discount_note(discount)}"
        paid_nano_usd = discount.off(listed.nano_usd_per_device_hour)
        return replace(listed, from_ts=ts, nano_usd_per_device_hour=paid_nano_usd, note=note)

    def _on_offer(self, offer: Offer, ts: int) -> Offer:
        discount = self.at(offer.provider, ts)
        if discount is None:
            return offer
        note = "; ".join(filter(None, (offer.note, _discount_note(discount))))
        return replace(offer, nano_usd_per_device_hour=discount.off(offer.nano_usd_per_device_hour), note=note)


def _discount_note(discount: Discount) -> str:
    note = f" ({discount.note})" if discount.note else ""
    return f"less {discount.percent} negotiated with {discount.provider}{note}"


@dataclass(frozen=True, slots=True)
class Entered:
    """Amount in another currency, with its exchange rate to dollars."""

    amount: Decimal
    currency: str
    """Code of three letters."""
    usd_per_unit: Decimal
    """Dollars for one unit of the currency."""
    rate_as_of: date
    rate_source: str

    @property
    def nano_usd(self) -> int:
        """The amount in nano-USD."""
        return int((self.amount * self.usd_per_unit * NANO_USD).to_integral_value())

    @property
    def text(self) -> str:
        """The amount as it was entered, with its rate."""
        rate = f"{self.usd_per_unit} USD, {self.rate_as_of}, {self.rate_source}"
        return f"{self.amount} {self.currency} (1 {self.currency} = {rate})"

    @property
    def stored(self) -> str:
        """Its fields as JSON, for the store."""
        return json.dumps({name: str(value) for name, value in asdict(self).items()})


def entered_of(stored: str | None) -> Entered | None:
    """Return the amount from its stored JSON; None for an amount in dollars."""
    if stored is None:
        return None
    fields = json.loads(stored)
    return Entered(
        Decimal(fields["amount"]),
        fields["currency"],
        Decimal(fields["usd_per_unit"]),
        date.fromisoformat(fields["rate_as_of"]),
        fields["rate_source"],
    )


def identity(selector: str) -> str:
    """Return the selector in lower case with its words separated by one space; empty if it has none."""
    return " ".join(_words(selector))


def rank(selector: str, device: MatchedDevice) -> int:
    """Return the rank of a selector for a device: 0 no match, 1 its kind, more for words of its name, `EXACT` its UUID.

    Names of the driver and of the catalog match by whole words in sequence: `H100` matches "NVIDIA H100 80GB HBM3",
    `H10` does not; `A100 80GB` matches "NVIDIA A100-SXM4-80GB".
    """
    words = _words(selector)
    if words and selector.strip().casefold() == device.uuid.casefold():
        return EXACT
    if len(words) == 1 and words[0] in KINDS:
        return int(words[0] == device.kind)
    return 1 + len(identity(selector)) if _within(words, _names(device.name)) else 0


def accelerators(selector: str) -> tuple[Accelerator, ...]:
    """Return the accelerators of the catalog that a selector matches; `gpu` matches all."""
    words, listed = _words(selector), load_market().accelerators
    return tuple(
        accelerator
        for accelerator in listed
        if words == ("gpu",) or _within(words, _names(accelerator.reported_names[0]))
    )


def formerly(selector: str, device: MatchedDevice) -> bool:
    """Return whether a selector matches only by the former rule: as any part of the device's name."""
    return selector.lower() in device.name.lower() and identity(selector) not in KINDS and not rank(selector, device)


def _within(words: tuple[str, ...], names: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether the words follow each other in one of the names."""
    n = len(words)
    return n > 0 and any(name[i : i + n] == words for name in names for i in range(len(name) - n + 1))


@cache
def _names(device_name: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of a device from its driver and the catalog, each as words."""
    accelerator = load_market().accelerator(device_name)
    catalog_names = (accelerator.name, *accelerator.reported_names) if accelerator else ()
    return tuple(dict.fromkeys(map(_words, (device_name, *catalog_names))))


@cache
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))
