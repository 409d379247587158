"""Prices of a database, set or imported by people, as one book for the recorded devices."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection

from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import Offer
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.costs.prices.detected import detected_prices
from pertoken.costs.prices.discounts import Discount, Discounts
from pertoken.costs.prices.entered import entered_of
from pertoken.costs.prices.owned import Ownership, owned_prices, ownership_of
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.window.inventory import Inventory
from pertoken.window.reading import weekly_plug_w, weekly_power_w

Owned = Mapping[str, Sequence[tuple[int, Ownership]]]
"""By host name, what it costs by the instant that is in force from, oldest first."""


def prices_set(store: Store) -> tuple[Price, ...]:
    """Return all prices people set; none where there is no advice yet."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return _prices(connection)


def price_book(
    store: Store, connection: Connection, inventory: Inventory, proposed: Sequence[Discount] = ()
) -> PriceBook:
    """Return the prices set, and list prices of detected instances, less discounts, for devices without one.

    `connection` reads the telemetry; a server's prices are read in its transaction. `proposed` are discounts that are
    not stored yet.
    """
    if store.advice is store.telemetry:
        prices, imported, owned, discounts = _stored(connection)
    elif store.advice is None:
        prices, imported, owned, discounts = (), (), {}, Discounts()
    else:
        prices, imported, owned, discounts = store.read_advice(_stored)
    today = datetime.fromtimestamp(inventory.now_ts, UTC).date()
    market = load_market().having(imported) if imported else load_market()
    agreed = discounts.having(proposed)
    listed = detected_prices(inventory.devices.values(), inventory.host, market, today, agreed)
    return PriceBook(prices, {**_of_owned(connection, inventory, owned), **listed})


def _stored(connection: Connection) -> tuple[tuple[Price, ...], tuple[Offer, ...], Owned, Discounts]:
    return _prices(connection), _offers(connection), _owned(connection), _discounts(connection)


def _of_owned(connection: Connection, inventory: Inventory, owned: Owned) -> dict[str, tuple[Price, ...]]:
    """Return the prices of devices of owned servers: their accelerators, or the CPUs of one without any."""
    by_host: dict[str, list[Any]] = defaultdict(list)
    for row in inventory.devices.values() if owned else ():
        if row.parent_id is None and row.host_name in owned:
            by_host[row.host_name].append(row)
    paid = {name: [row for row in rows if row.kind != "cpu"] or rows for name, rows in by_host.items()}
    power = weekly_power_w(connection, [row.device_id for rows in paid.values() for row in rows]) if paid else {}
    plug = weekly_plug_w(connection, {row.host_id for rows in paid.values() for row in rows}) if paid else {}
    return {
        row.uuid: owned_prices(
            row.uuid,
            name,
            len(rows),
            owned[name],
            power.get(row.device_id, ()),
            None if row.kind == "cpu" or row.power_limit_mw is None else row.power_limit_mw / 1000,
            plug.get(row.host_id, ()),
        )
        for name, rows in paid.items()
        for row in rows
    }


def ownership(store: Store) -> Owned:
    """Return what owned servers cost by name; none where there is no advice yet."""
    if store.advice is None:
        return {}
    with store.read("advice") as connection:
        return _owned(connection)


def _owned(connection: Connection) -> Owned:
    owned: dict[str, list[tuple[int, Ownership]]] = defaultdict(list)
    for row in repository.owned(connection):
        owned[row.host].append((row.from_ts, ownership_of(row.terms)))
    return owned


def offers_imported(store: Store) -> tuple[Offer, ...]:
    """Return all list prices people imported, in that order; none where there is no advice yet."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return _offers(connection)


def discounts_set(store: Store) -> Discounts:
    """Return all discounts people set; none where there is no advice yet."""
    if store.advice is None:
        return Discounts()
    with store.read("advice") as connection:
        return _discounts(connection)


def market_of(
    store: Store, provider: str | None = None, region: str | None = None, now_ts: int | None = None
) -> Market:
    """Return the catalog with what people imported, less discounts in force at `now_ts`, by default now.

    It is limited to a provider and a region where they are given.
    """
    market = load_market(provider, region).having(offers_imported(store))
    agreed = discounts_set(store)
    if not agreed.all:
        return market
    ts = int(time.time()) if now_ts is None else now_ts
    return replace(market, all_offers=agreed.on_offers(market.all_offers, ts))


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
        Price(
            row.selector,
            row.nano_usd_per_device_hour,
            row.from_ts,
            row.set_ts,
            row.set_by,
            row.note,
            seq=row.seq,
            until_ts=row.until_ts,
            entered=entered_of(row.entered),
        )
        for row in repository.prices(connection)
    )


def _discounts(connection: Connection) -> Discounts:
    return Discounts(
        Discount(row.provider, row.millionths, row.from_ts, row.until_ts, row.set_ts, row.set_by, row.note, seq=row.seq)
        for row in repository.discounts(connection)
    )
