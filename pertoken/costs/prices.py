"""What a device-hour costs, and since when: effective-dated, so that a new price never changes past costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Price:
    """A configured price. `selector` is `cpu`, `gpu`, part of a device's name, or a device's UUID."""

    selector: str
    nano_usd_per_device_hour: int
    from_ts: int
    """In force from this instant on; 0: since ever."""
    set_ts: int = 0
    set_by: str = ""
    note: str | None = None
    listed: bool = False
    """A list price of the instance detected: nobody set it."""


class Priced(NamedTuple):
    """What a price is looked up for."""

    kind: str
    name: str
    uuid: str
    parent_id: int | None = None
    """The GPU a MIG device is paid for with."""


class PriceBook:
    """All prices ever set. The most exact selector in force wins, then the one in force since latest.

    `detected` are list prices by device UUID, each from the day it was listed on, for devices and times that no price
    set is in force for.
    """

    def __init__(self, prices: Iterable[Price], detected: Mapping[str, Sequence[Price]] | None = None) -> None:
        self.detected = {
            uuid: tuple(sorted(each, key=lambda price: price.from_ts)) for uuid, each in (detected or {}).items()
        }
        self.prices = tuple(sorted(prices, key=lambda price: (price.from_ts, price.set_ts)))
        self._selectors = {price.selector.lower() for price in self.prices}
        self._looked_up: dict[tuple[str, str, str, int], Price | None] = {}

    def alone(self, uuid: str) -> bool:
        """Whether a device may have a price of its own; devices of one kind and name have the same otherwise."""
        return uuid in self.detected or uuid.lower() in self._selectors

    def at(self, device: Priced, ts: int) -> Price | None:
        """The price of a device at an instant; None if nobody set one and none is listed."""
        key = device.kind, device.name, device.uuid if self.alone(device.uuid) else "", ts
        if key not in self._looked_up:  # a fleet has thousands of devices of a few names
            self._looked_up[key] = self._find(device, ts)
        return self._looked_up[key]

    def _find(self, device: Priced, ts: int) -> Price | None:
        best: tuple[int, Price] | None = None
        for price in self.prices:
            rank = _rank(price.selector, device)
            if rank and price.from_ts <= ts and (best is None or rank >= best[0]):
                best = rank, price
        if best:
            return best[1]
        return next((price for price in reversed(self.detected.get(device.uuid, ())) if price.from_ts <= ts), None)

    def changes(self) -> tuple[int, ...]:
        """Every instant at which some price came into force."""
        listed = (price for each in self.detected.values() for price in each)
        return tuple(sorted({price.from_ts for price in (*self.prices, *listed) if price.from_ts}))


def _rank(selector: str, device: Priced) -> int:
    """How exactly a selector names a device: 0 not at all; a longer part of the name beats a shorter one."""
    selector = selector.lower()
    if selector == device.uuid.lower():
        return 1_000_000
    if selector == device.kind:
        return 1
    return 1 + len(selector) if selector in device.name.lower() else 0
