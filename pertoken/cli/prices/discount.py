"""Setting and withdrawing discounts on the list prices of a provider."""

from __future__ import annotations

from pertoken.cli.options import echo, settings_of
from pertoken.cli.prices.setting import confirm
from pertoken.cli.prices.words import end_ts, period, start_ts


def put_discount(
    config_file: str | None,
    db: str | None,
    provider: str,
    millionths: int | None,
    start: str | None,
    until: str | None,
    note: str | None,
    yes: bool,
) -> None:
    """Show the past costs that a discount (None: no discount) changes, and set it.

    Starts again if another person sets one meanwhile. Raises BadInput.
    """
    import getpass
    import time

    from pertoken.catalog.market import load_market
    from pertoken.catalog.offers import newest
    from pertoken.costs.prices.book import Discount
    from pertoken.costs.prices.stored import discounts_set, offers_imported
    from pertoken.costs.repricing import read_prices
    from pertoken.errors import BadInput
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import Store, open_advice, reading
    from pertoken.store.repository import AdviceRepository, PricesChanged

    name = provider.strip().lower()
    now = int(time.time())
    from_ts = start_ts(start or "now", now)
    until_ts = end_ts(until, from_ts, now)
    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    upgrade(where, "advice")
    while True:
        store = Store(where, reading(where, "telemetry"), open_advice(where))
        known = discounts_set(store)
        market = load_market().having(offers_imported(store))
        listed = sum(offer.provider == name for offer in newest(market.all_offers))
        if millionths is None and not any(discount.provider == name for discount in known.all):
            raise BadInput(f"no discount is set for {name!r}")
        if millionths is not None and not listed:
            providers = ", ".join(sorted({offer.provider for offer in market.all_offers}))
            raise BadInput(f"no list price of {name!r} is known; providers are {providers}")
        seq = max((discount.seq for discount in known.all), default=0)
        discount = Discount(name, millionths, from_ts, until_ts, now, getpass.getuser(), note, seq + 1)
        prices = "list price" if listed == 1 else "list prices"
        echo(f"{name}: {discount.percent} on {listed} {prices}, {period(from_ts, until_ts, now)}.")
        before, after = read_prices(where, now), read_prices(where, now, (discount,))
        confirm(where, before.book, after.book, from_ts, now, yes or start in (None, "now"))
        try:
            with AdviceRepository(where).writing() as connection:
                repository.add_discount(
                    connection,
                    read_seq=seq,
                    provider=name,
                    millionths=millionths,
                    from_ts=from_ts,
                    until_ts=until_ts,
                    set_ts=now,
                    set_by=discount.set_by,
                    note=note,
                )
        except PricesChanged:
            echo("Another person changed discounts meanwhile; starting again.", err=True)
            continue
        return
