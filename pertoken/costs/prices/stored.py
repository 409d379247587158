"""The prices of a database: those people set, and the book of them with list prices of the devices recorded."""

from datetime import UTC, datetime

from sqlalchemy import Connection

from pertoken.catalog.market import load_market
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
    prices = _prices(connection) if store.advice is store.telemetry else prices_set(store)
    today = datetime.fromtimestamp(there.now_ts, UTC).date()
    return PriceBook(prices, detected_prices(there.devices.values(), there.host, load_market(), today))


def _prices(connection: Connection) -> tuple[Price, ...]:
    return tuple(
        Price(row.selector, row.nano_usd_per_device_hour, row.from_ts, row.set_ts, row.set_by, row.note, seq=row.seq)
        for row in repository.prices(connection)
    )
