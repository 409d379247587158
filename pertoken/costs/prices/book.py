"""Prices of a device-hour by effective date, so that a new price never changes past costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pertoken.catalog.offers import Offer
from pertoken.costs.prices.entered import Entered
from pertoken.costs.prices.selectors import identity, rank

BILLED = "billed"
"""`set_by` of a price that an invoice gave (`pertoken reconcile`)."""


@dataclass(frozen=True, slots=True)
class Price:
    """A price somebody set, or took back. `selector` is `cpu`, `gpu`, words of a device's name, or a device's UUID."""

    selector: str
    nano_usd_per_device_hour: int | None
    """None: from then on the selector has no price."""
    from_ts: int
    """In force from this instant on; 0: from the beginning."""
    set_ts: int = 0
    set_by: str = ""
    note: str | None = None
    listed: bool = False
    """A list price of the instance detected: nobody set it."""
    offer: Offer | None = None
    """The listed offer that it is of."""
    seq: int = 0
    """Its place in the order of setting, which decides between prices in force from the same instant."""
    until_ts: int | None = None
    """End, exclusive, after which the price before it applies again; None: until another is set."""
    entered: Entered | None = None
    """The amount in the currency that it was entered in; None: dollars."""

    def in_force(self, ts: int) -> bool:
        """Return whether it has begun and not ended."""
        return self.from_ts <= ts and (self.until_ts is None or ts < self.until_ts)


class Priced(NamedTuple):
    """Device that a price is looked up for."""

    kind: str
    name: str
    uuid: str
    parent_id: int | None = None
    """The GPU a MIG device is paid for with."""


class PriceBook:
    """All prices ever set. The most exact selector in force wins, then the one in force since latest, then the one set
    last.

    `detected` are list prices by device UUID, each from the day it was listed on, for devices and times that no price
    set is in force for.
    """

    def __init__(self, prices: Iterable[Price], detected: Mapping[str, Sequence[Price]] | None = None) -> None:
        self.detected = {
            uuid: tuple(sorted(prices, key=lambda price: price.from_ts)) for uuid, prices in (detected or {}).items()
        }
        self.prices = tuple(sorted(prices, key=in_order))
        self._by_selector: dict[str, list[Price]] = {}
        for price in self.prices:
            self._by_selector.setdefault(identity(price.selector), []).append(price)
        self._own = {price.selector.strip().casefold() for price in self.prices} | {
            uuid.casefold() for uuid in self.detected
        }
        self._looked_up: dict[tuple[str, str, str, int], Price | None] = {}

    def alone(self, uuid: str) -> bool:
        """Return whether a device may have a price of its own; devices of one kind and name have the same otherwise."""
        return uuid.casefold() in self._own

    def at(self, device: Priced, ts: int) -> Price | None:
        """Return the price of a device at an instant; None if none is set or listed."""
        key = device.kind, device.name, device.uuid if self.alone(device.uuid) else "", ts
        if key not in self._looked_up:  # a fleet has thousands of devices of a few names
            self._looked_up[key] = self._find(device, ts)
        return self._looked_up[key]

    def rate(self, device: Priced, ts: int) -> int | None:
        """Nano-USD for an hour of a device at an instant; None if not known."""
        price = self.at(device, ts)
        return None if price is None else price.nano_usd_per_device_hour

    def each_at(self, devices: Iterable[Priced], ts: int) -> list[Price | None]:
        """Return the price of each device at an instant, in their order; None where none is set or listed."""
        known: dict[tuple[str, str], Price | None] = {}
        prices = []
        for device in devices:  # a fleet has thousands of a few names
            if device.uuid.casefold() in self._own:
                prices.append(self.at(device, ts))
                continue
            name = device.kind, device.name
            if name not in known:
                known[name] = self.at(device, ts)
            prices.append(known[name])
        return prices

    def rates(self, devices: Iterable[Priced], ts: int) -> list[int | None]:
        """Nano-USD for an hour of each device at an instant, in their order; None where not known."""
        return [None if price is None else price.nano_usd_per_device_hour for price in self.each_at(devices, ts)]

    def applies(self, device: Priced) -> bool:
        """Return whether a device has a price at any time, set or listed."""
        return device.uuid in self.detected or any(
            price.nano_usd_per_device_hour is not None and rank(price.selector, device) for price in self.prices
        )

    def of_selector(self, selector: str) -> Sequence[Price]:
        """Prices set for a selector, however it is spelled, in their order."""
        return self._by_selector.get(identity(selector), ())

    def _find(self, device: Priced, ts: int) -> Price | None:
        best: tuple[int, tuple[int, int, int]] | None = None
        latest = None
        for prices in self._by_selector.values():
            price = next((price for price in reversed(prices) if price.in_force(ts)), None)
            if price is None or price.nano_usd_per_device_hour is None:
                continue
            order = rank(price.selector, device), in_order(price)
            if order[0] and (best is None or order > best):
                best, latest = order, price
        if latest is not None:
            return latest
        return next((price for price in reversed(self.detected.get(device.uuid, ())) if price.from_ts <= ts), None)

    def changes(self) -> tuple[int, ...]:
        """Return every instant at which some price came into force, ended, or was taken back."""
        listed = (price for prices in self.detected.values() for price in prices)
        instants = {ts for price in (*self.prices, *listed) for ts in (price.from_ts, price.until_ts) if ts}
        return tuple(sorted(instants))


def in_order(price: Price) -> tuple[int, int, int]:
    """Return the sort key of prices in force: the one in force since later wins, then the one set later."""
    return price.from_ts, price.seq, price.set_ts
