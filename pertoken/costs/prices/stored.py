"""Prices of a database, set or imported by people, as one book for the recorded devices."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime

from sqlalchemy import Connection

from pertoken.catalog.coverage import CPU
from pertoken.catalog.instances import node_power, terms
from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import ANYWHERE, Offer, marks, newest
from pertoken.costs.prices.book import Discount, Discounts, Price, PriceBook, entered_of
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_advice, open_store, reading
from pertoken.units import NANO_USD, format_usd
from pertoken.window.inventory import Inventory, KnownDevice, KnownHost
from pertoken.window.reading import Window, weekly_plug_w, weekly_power_w


def detected_prices(
    devices: Iterable[KnownDevice],
    hosts: Mapping[int, KnownHost],
    market: Market,
    today: date,
    discounts: Discounts | None = None,
) -> dict[str, tuple[Price, ...]]:
    """Return prices of a device-hour by device UUID, for devices of an instance that is listed.

    Each is in force from the day it was listed on, or from when it was imported, so that a newer one changes no past
    costs.
    `devices` are rows of `store.query.read.devices`, `hosts` those of their hosts by id. An instance's price is for its
    accelerators together, so that its CPUs have none of their own; an instance without accelerators prices its CPUs.
    An unknown region or purchase is not guessed. `discounts` are taken off from their start to their end.
    """
    rows = list(devices)
    with_accelerators = {row.host_id for row in rows if row.kind == "gpu"}
    prices = {}
    offers_of: dict[tuple[str, str, str, str, str], list[Offer]] = {}
    for row in rows:
        if row.kind != "gpu" and (row.kind != "cpu" or row.host_id in with_accelerators):
            continue
        host = hosts[row.host_id]
        if host.purchase is None or host.cloud is None or host.instance_type is None or host.region is None:
            continue
        name = CPU if row.kind == "cpu" else row.name
        instance = name, host.purchase, host.cloud, host.instance_type, host.region
        if instance not in offers_of:
            offers_of[instance] = _listed(market, *instance)
        if offers_of[instance]:
            listed = [_price(row.uuid, offer, market, today) for offer in offers_of[instance]]
            prices[row.uuid] = (discounts or Discounts()).on_prices(host.cloud, listed)
    return prices


def _listed(market: Market, name: str, purchase: str, provider: str, instance_type: str, region: str) -> list[Offer]:
    """Return every offer of such an instance, replaced ones included."""
    accelerator = market.accelerator(name)
    wanted = CPU if name == CPU else accelerator.name if accelerator else None
    return [
        offer
        for offer in market.all_offers
        if (offer.accelerator, offer.purchase, offer.provider, offer.instance_type)
        == (wanted, purchase, provider, instance_type)
        and offer.region in (region, ANYWHERE)
    ]


def _price(uuid: str, offer: Offer, market: Market, today: date) -> Price:
    marked = "".join(f"; {mark}" for mark in marks([offer], today, market.stale_after_days))
    purchase = offer.purchase.replace("_", "-")
    note = (
        f"list price of {offer.provider} {offer.instance_type} {purchase} in {offer.region}, "
        f"{offer.as_of} ({offer.source}){marked}"
    )
    midnight = int(datetime.combine(offer.as_of, datetime.min.time(), UTC).timestamp())
    return Price(
        uuid,
        offer.nano_usd_per_device_hour,
        from_ts=midnight if offer.from_ts is None else offer.from_ts,
        set_by="catalog",
        note=note,
        listed=True,
        offer=offer,
    )


HOURS_PER_YEAR = 8760
MONTHS = 12


@dataclass(frozen=True, slots=True)
class Ownership:
    """Price and running cost of a server as its owner states them; None stands for the default of `terms()`."""

    capex_usd: float
    """Of the whole server with its share of the network."""
    nameplate_kw: float | None = None
    """Power that is reserved for the server; None: colocation is not counted."""
    years: float | None = None
    cost_of_capital: float | None = None
    residual: float | None = None
    maintenance: float | None = None
    usd_per_kwh: float | None = None
    pue: float | None = None
    colo_usd_per_kw_month: float | None = None
    operations_hours: float | None = None
    usd_per_operations_hour: float | None = None
    at_plug: bool = False
    """Whether its energy is that of the server at the plug; else of its devices alone, as in older terms."""
    node_w: float | None = None
    """Mean power of the server as measured at its plug; None: by the model of `catalog.instances`."""

    def __post_init__(self) -> None:
        """Raises ValueError naming the value that is out of range."""
        if not 0 < self.capex_usd <= 1e8:
            raise ValueError("capex is the price of the server in dollars, above 0")
        if self.nameplate_kw is not None and not 0 < self.nameplate_kw <= 1000:
            raise ValueError("nameplate_kw is the power of the server in kilowatts, above 0 and at most 1000")
        if self.node_w is not None and not 0 < self.node_w <= 1e6:
            raise ValueError("node_w is the mean power of the server at its plug in watts, above 0")
        for name, term in terms().items():
            value = getattr(self, name)
            if value is not None and not term.low <= value <= term.high:
                raise ValueError(f"{name} ({term.meaning}) is from {term.low:g} to {term.high:g}, usually {term.usual}")

    def stated(self, name: str) -> float:
        """Return a term as it is stated, else its default."""
        value = getattr(self, name)
        return terms()[name].value if value is None else float(value)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Terms that nobody stated."""
        unused = {"colo_usd_per_kw_month"} if self.nameplate_kw is None else set()
        unused |= set() if self.operations_hours else {"operations_hours", "usd_per_operations_hour"}
        return tuple(name for name in terms() if getattr(self, name) is None and name not in unused)

    @property
    def text(self) -> str:
        """Its fields as they are stored."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


def ownership_of(text: str) -> Ownership:
    """Return the stored terms; fields of a newer pertoken are left out."""
    names = {field.name for field in fields(Ownership)}
    return Ownership(**{name: value for name, value in json.loads(text).items() if name in names})


@dataclass(frozen=True, slots=True)
class DeviceHour:
    """The cost of an hour of one of a server's devices, dollars by part."""

    capital: float
    maintenance: float
    colocation: float
    energy: float
    operations: float = 0.0

    @property
    def nano_usd(self) -> int:
        """All parts together."""
        return round((self.capital + self.maintenance + self.colocation + self.energy + self.operations) * NANO_USD)


def paid_power_w(
    owned: Ownership, devices: int, power_w: float | None, limit_w: float | None, plug_w: float | None = None
) -> float | None:
    """Return the watts that one of a server's devices pays for: its part of the server's at the plug.

    `power_w`: its own mean power; `limit_w`: its power limit, without which the rest of the server is not known;
    `plug_w`: the server's mean power as the agent recorded it.
    """
    if not owned.at_plug:
        return power_w
    server_w = plug_w if owned.node_w is None else owned.node_w
    if server_w is not None:
        return server_w / devices
    return power_w if power_w is None or limit_w is None else node_power().watts(power_w, limit_w)


def device_hour(owned: Ownership, devices: int, power_w: float | None) -> DeviceHour:
    """Return the cost of an hour of one of `devices` at the power it pays for; without one its energy is left out.

    [C (1 - rv) CRF(r, n) + C rv r] / 8760 for capital, with CRF = r / (1 - (1 + r)^-n), C m / 8760 for maintenance,
    kW colo 12 / 8760 for the room, kW PUE $/kWh for energy, hours a year x $ / 8760 for the people.
    """
    usd_per_device = owned.capex_usd / devices
    rate, years, residual = (owned.stated(name) for name in ("cost_of_capital", "years", "residual"))
    recovery = 1 / years if rate == 0 else rate / (1 - (1 + rate) ** -years)
    kw = (owned.nameplate_kw or 0.0) / devices
    return DeviceHour(
        capital=usd_per_device * ((1 - residual) * recovery + residual * rate) / HOURS_PER_YEAR,
        maintenance=usd_per_device * owned.stated("maintenance") / HOURS_PER_YEAR,
        colocation=kw * owned.stated("colo_usd_per_kw_month") * MONTHS / HOURS_PER_YEAR,
        operations=owned.stated("operations_hours")
        * owned.stated("usd_per_operations_hour")
        / devices
        / HOURS_PER_YEAR,
        energy=(power_w or 0.0) / 1000 * owned.stated("pue") * owned.stated("usd_per_kwh"),
    )


def owned_prices(
    uuid: str,
    host: str,
    devices: int,
    owned: Sequence[tuple[int, Ownership]],
    power: Sequence[tuple[int, float]],
    limit_w: float | None = None,
    plug: Sequence[tuple[int, float]] = (),
) -> tuple[Price, ...]:
    """Return the prices of one device of an owned server, in force from each change of its terms and each week.

    `owned` are terms by the instant they are in force from, `power` its mean watts by the start of each week. The power
    of a week that is over never changes, and so do its costs not. `limit_w` is its power limit; None for a CPU. `plug`
    is the server's mean watts at its plug by week.
    """
    if not owned:
        return ()
    starts = sorted({start for start, _ in (*power, *plug)})
    first = owned[0][0]
    prices: list[Price] = []
    for ts in sorted({start for start, _ in owned} | {start for start in starts if start > first}):
        stated = owned[bisect_right([start for start, _ in owned], ts) - 1][1]
        power_w, plug_w = _in_week(power, ts), _in_week(plug, ts)
        paid_w = paid_power_w(stated, devices, power_w, limit_w, plug_w)
        price = device_hour(stated, devices, paid_w).nano_usd
        if not prices or prices[-1].nano_usd_per_device_hour != price:
            note = _note(host, stated, devices, power_w, paid_w, measured=plug_w is not None)
            prices.append(Price(uuid, price, from_ts=ts, set_by="ownership", note=note, listed=True))
    return tuple(prices)


def _in_week(weekly: Sequence[tuple[int, float]], ts: int) -> float | None:
    """Return the value of the week of an instant, else of the one before; of the first week before that."""
    return weekly[max(0, bisect_right([start for start, _ in weekly], ts) - 1)][1] if weekly else None


def _note(
    host: str, owned: Ownership, devices: int, power_w: float | None, paid_w: float | None, *, measured: bool
) -> str:
    energy = "without its energy, which was not measured" if power_w is None else f"at {power_w:.0f} W measured"
    if paid_w is not None and paid_w != power_w:
        source = "measured" if measured or owned.node_w is not None else "modelled"
        energy = f"at {paid_w:.0f} W of the server's power at the plug, {source}"
    elif owned.at_plug and power_w is not None:
        energy += " without the rest of the server, as its power limit is not known"
    assumed = f"; assumed: {', '.join(owned.assumed)}" if owned.assumed else ""
    return f"cost of owning {host} ({format_usd(owned.capex_usd * NANO_USD)} for {devices} devices, {energy}{assumed})"


Owned = Mapping[str, Sequence[tuple[int, Ownership]]]
"""Terms by host name, each with the instant that it is in force from, oldest first."""


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
        with store.read("advice") as advice:
            prices, imported, owned, discounts = _stored(advice)
    today = datetime.fromtimestamp(inventory.now_ts, UTC).date()
    market = load_market().having(imported) if imported else load_market()
    agreed = discounts.having(proposed)
    listed = detected_prices(inventory.devices.values(), inventory.host, market, today, agreed)
    return PriceBook(prices, {**_of_owned(connection, inventory, owned), **listed})


def _stored(connection: Connection) -> tuple[tuple[Price, ...], tuple[Offer, ...], Owned, Discounts]:
    return _prices(connection), _offers(connection), _owned(connection), _discounts(connection)


def _of_owned(connection: Connection, inventory: Inventory, owned: Owned) -> dict[str, tuple[Price, ...]]:
    """Return the prices of devices of owned servers: their accelerators, or the CPUs of one without any."""
    by_host: dict[str, list[KnownDevice]] = defaultdict(list)
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
    """Return the terms of owned servers by name; none where there is no advice yet."""
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


_OFFER_COLUMNS = tuple(field.name for field in fields(Offer) if field.name not in ("as_of", "origin"))


def _offers(connection: Connection) -> tuple[Offer, ...]:
    return tuple(
        Offer(as_of=date.fromisoformat(row.as_of), **{name: getattr(row, name) for name in _OFFER_COLUMNS})
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


def offers_used_at(location: StoreLocation, provider: str | None, now_ts: int) -> tuple[Offer, ...]:
    """Return `used_offers` of a database that may not have recorded anything yet. Raises StoreError."""
    if location.exists("telemetry"):
        return used_offers(open_store(location), provider, now_ts)
    return used_offers(Store(location, reading(location, "telemetry"), open_advice(location)), provider, now_ts)
