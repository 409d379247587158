"""Effect of a change of prices: the recorded devices it applies to, and their dollars so far before and after it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pertoken.costs.bill import bill
from pertoken.costs.ledger import cost
from pertoken.costs.prices.book import (
    Discount,
    Discounts,
    Price,
    PriceBook,
    PriceSubject,
    accelerators,
    formerly,
    identity,
    rank,
)
from pertoken.costs.prices.stored import discounts_set, prices_set
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_advice, open_store, reading
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.reading import Window


@dataclass(frozen=True, slots=True)
class Prices:
    """All prices of a database, and the recorded devices that are paid for."""

    book: PriceBook
    devices: tuple[PriceSubject, ...]
    seq: int
    """Of the price set last, by which a later one is noticed."""
    discounts: Discounts = field(default_factory=Discounts)

    def named(self, selector: str) -> tuple[PriceSubject, ...]:
        """Recorded devices that a selector names."""
        return tuple(device for device in self.devices if rank(selector, device))

    def unpriced(self, selector: str) -> bool:
        """Return whether nothing it names has had a price, set or listed, at any time.

        Where it names no recorded device, what it names in the catalog stands for those to come.
        """
        to_come = [PriceSubject("gpu", accelerator.reported_names[0], "") for accelerator in accelerators(selector)]
        if identity(selector) == "cpu":
            to_come.append(PriceSubject("cpu", "", ""))
        named = self.named(selector) or tuple(to_come)
        return not self.book.of_selector(selector) and not any(map(self.book.applies, named))

    def having(self, price: Price) -> PriceBook:
        """Return the prices with another one set last."""
        return PriceBook((*self.book.prices, price), self.book.detected)

    def lost(self, selector: str) -> tuple[str, ...]:
        """Names of recorded devices that a selector named when any part of a name did, and does not name now."""
        return tuple(dict.fromkeys(device.name for device in self.devices if formerly(selector, device)))


def read_prices(location: StoreLocation, now_ts: int, proposed: Sequence[Discount] = ()) -> Prices:
    """Return the prices and devices of a database as they are now, without devices where nothing was recorded yet.

    `proposed` are discounts that are not stored yet.

    Raises StoreError.
    """
    if not location.exists("telemetry"):
        store = Store(location, reading(location, "telemetry"), open_advice(location))
        prices = prices_set(store)
        return Prices(PriceBook(prices), (), _newest(prices), discounts_set(store))
    store = open_store(location)
    with bill(store, 0, now_ts, proposed=proposed) as priced:
        book = priced.prices
        payers = tuple(PriceSubject(row.kind, row.name, row.uuid) for row in priced.payers.values())
    return Prices(book, payers, _newest(book.prices), discounts_set(store))


def _newest(prices: Iterable[Price]) -> int:
    return max((price.seq for price in prices), default=0)


@dataclass(slots=True)
class Repriced:
    """Devices of one name whose dollars change, and the time in which they do."""

    name: str
    first_ts: int
    last_ts: int
    before: int | None
    """Nano-USD so far; None: they had no price."""
    after: int | None
    devices: set[int]
    device_ms: int = 0
    """Time of all of them together."""


def repriced(
    location: StoreLocation, previous_book: PriceBook, after: PriceBook, since: int, now_ts: int
) -> tuple[Repriced, ...]:
    """Return the recorded dollars since `since` at other prices, by device name, where they differ.

    Those that had no price, or lose it, are apart. Raises StoreError.
    """
    if not location.exists("telemetry"):
        return ()
    changes: dict[tuple[str, bool, bool], Repriced] = {}
    with open_store(location).read() as connection:
        devices = Window(connection, 0, now_ts).inventory.devices
        rows = {device_id: row for device_id, row in devices.items() if row.parent_id is None}
        start = max(since, min((row.first_ts for row in rows.values()), default=now_ts) - HOUR)
        for first, until, times in Window(connection, start, now_ts).device_time(
            {*previous_book.changes(), *after.changes()}
        ):
            last = min(now_ts, until)
            for device_id, duration_ms, _ in times:
                row = rows.get(device_id)
                if row is None:
                    continue
                old, new = (_cost(duration_ms, book.rate(row, first)) for book in (previous_book, after))
                if old != new:
                    since_ts = max(first, row.first_ts)
                    key = row.name, old is None, new is None
                    change = changes.setdefault(key, Repriced(row.name, since_ts, last, old and 0, new and 0, set()))
                    change.first_ts, change.last_ts = min(change.first_ts, since_ts), max(change.last_ts, last)
                    change.before, change.after = _plus(change.before, old), _plus(change.after, new)
                    change.devices.add(device_id)
                    change.device_ms += duration_ms
    return tuple(changes.values())


def _cost(duration_ms: int, nano_usd_per_hour: int | None) -> int | None:
    return None if nano_usd_per_hour is None else cost(duration_ms, nano_usd_per_hour)


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
