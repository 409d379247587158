"""List prices that costs and advice of a database use: those of the providers that its hosts run at."""

from pertoken.catalog.offers import Offer, newest
from pertoken.costs.prices.stored import market_of
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_advice, open_store, reading
from pertoken.window.reading import Window


def used_offers(store: Store, provider: str | None, now_ts: int) -> tuple[Offer, ...]:
    """Return the list prices in force of `provider`, else of the providers of recorded hosts, else of all.

    Raises StoreError.
    """
    offers = newest(market_of(store, provider, now_ts=now_ts).all_offers)
    if provider is not None or not store.location.exists("telemetry"):
        return offers
    with store.read() as connection:
        hosts = Window(connection, 0, now_ts).inventory.host
    providers = {host.cloud for host in hosts.values()}
    return tuple(offer for offer in offers if offer.provider in providers) or offers


def offers_used_at(place: StoreLocation, provider: str | None, now_ts: int) -> tuple[Offer, ...]:
    """Return `used_offers` of a database that may not have recorded anything yet. Raises StoreError."""
    if place.exists("telemetry"):
        return used_offers(open_store(place), provider, now_ts)
    return used_offers(Store(place, reading(place, "telemetry"), open_advice(place)), provider, now_ts)
