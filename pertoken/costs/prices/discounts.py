"""Negotiated discounts on the list prices of a provider, each from its start to its end."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pertoken.catalog.offers import Offer
from pertoken.costs.ledger import divide
from pertoken.costs.prices.book import Price

WHOLE = 1_000_000
"""A discount of 100 %, in millionths."""


@dataclass(frozen=True, slots=True)
class Discount:
    """Part of a provider's list prices that its customer does not pay, or the withdrawal of one."""

    provider: str
    millionths: int | None
    """Of the list price; None: from then on there is none."""
    from_ts: int
    """In force from this instant on; 0: from the beginning."""
    until_ts: int | None = None
    """End, exclusive, after which the discount before it applies again; None: until another is set."""
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
        """Return whether it is of a provider, has begun and not ended."""
        return self.provider == provider and self.from_ts <= ts and (self.until_ts is None or ts < self.until_ts)

    def off(self, nano_usd: int) -> int:
        """Return what is paid of a list price."""
        return divide(nano_usd * (WHOLE - (self.millionths or 0)), WHOLE)


class Discounts:
    """All discounts ever set. The one in force since latest counts, then the one set last."""

    def __init__(self, discounts: Iterable[Discount] = ()) -> None:
        self.all = tuple(sorted(discounts, key=lambda discount: (discount.from_ts, discount.seq)))

    def having(self, discounts: Iterable[Discount]) -> "Discounts":
        """Return these discounts with others set last."""
        return Discounts((*self.all, *discounts))

    def at(self, provider: str, ts: int) -> Discount | None:
        """Return the discount in force at a provider; None without one."""
        in_force = (discount for discount in reversed(self.all) if discount.in_force(provider, ts))
        latest = next(in_force, None)
        return None if latest is None or latest.millionths is None else latest

    def on_prices(self, provider: str, listed: Sequence[Price]) -> tuple[Price, ...]:
        """Return list prices of a device with the discounts of its provider, from each change of either."""
        prices = sorted(listed, key=lambda price: price.from_ts)
        if not prices or all(discount.provider != provider for discount in self.all):
            return tuple(prices)
        starts = {price.from_ts for price in prices}
        changes = {ts for ts in self._changes(provider) if ts > prices[0].from_ts}
        return tuple(self._on_price(provider, prices, ts) for ts in sorted(starts | changes))

    def on_offers(self, offers: Iterable[Offer], ts: int) -> tuple[Offer, ...]:
        """Return list prices with the discounts in force at an instant, each with a note."""
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
        note = f"{listed.note}; {_stated(discount)}"
        return replace(
            listed, from_ts=ts, nano_usd_per_device_hour=discount.off(listed.nano_usd_per_device_hour), note=note
        )

    def _on_offer(self, offer: Offer, ts: int) -> Offer:
        discount = self.at(offer.provider, ts)
        if discount is None:
            return offer
        note = "; ".join(filter(None, (offer.note, _stated(discount))))
        return replace(offer, nano_usd_per_device_hour=discount.off(offer.nano_usd_per_device_hour), note=note)


def _stated(discount: Discount) -> str:
    note = f" ({discount.note})" if discount.note else ""
    return f"less {discount.percent} negotiated with {discount.provider}{note}"
