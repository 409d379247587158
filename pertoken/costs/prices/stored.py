"""The prices of a database: those people set or imported, and the book of them for the devices recorded."""

from datetime import UTC, date, datetime

from sqlalchemy import Connection

from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import Offer
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.costs.prices.detected import detected_prices
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.window.inventory import Inventory


def prices_set(store: Store) -> tuple[Price, ...]:
    """Return all prices people set; none where there is no advice yet."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return _prices(connection)


def price_book(store: Store, connection: Connection, there: Inventory) -> PriceBook:
    """Return the prices set, and list prices of detected instances for devices without one.

    `connection` reads the telemetry; a server's prices are read in its transaction.
    """
    if store.advice is store.telemetry:
        prices, imported = _prices(connection), _offers(connection)
    else:
        prices, imported = prices_set(store), offers_imported(store)
    today = datetime.fromtimestamp(there.now_ts, UTC).date()
    market = load_market().having(imported) if imported else load_market()
    return PriceBook(prices, detected_prices(there.devices.values(), there.host, market, today))


def offers_imported(store: Store) -> tuple[Offer, ...]:
    """Return all list prices people imported, in that order; none where there is no advice yet."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return _offers(connection)


def market_of(store: Store, provider: str | None = None, region: str | None = None) -> Market:
    """Return the catalog with what people imported, limited to a provider and a region where they are given."""
    return load_market(provider, region).having(offers_imported(store))


def _offers(connection: Connection) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            provider=row.provider,
            instance_type=row.instance_type,
            accelerator=row.accelerator,
            n_devices=row.n_devices,
            region=row.region,
            purchase=row.purchase,
            nano_usd_per_device_hour=row.nano_usd_per_device_hour,
            as_of=date.fromisoformat(row.as_of),
            source=row.source,
            confidence=row.confidence,
            note=row.note,
            from_ts=row.from_ts,
        )
        for row in repository.offers(connection)
    )


def _prices(connection: Connection) -> tuple[Price, ...]:
    return tuple(
        Price(row.selector, row.nano_usd_per_device_hour, row.from_ts, row.set_ts, row.set_by, row.note, seq=row.seq)
        for row in repository.prices(connection)
    )
