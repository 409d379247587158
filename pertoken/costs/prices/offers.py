"""Lists of offers that a person imports from a file, and the changes they would make."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple, Protocol

from pertoken.catalog.coverage import ImplausibleOffer, faults, priced_names
from pertoken.catalog.market import MAX_RANKS, Accelerator, Market
from pertoken.catalog.offers import ANYWHERE, Offer, OfferKey, Origin, newest, per_device, toml_table
from pertoken.costs.prices.book import BILLED, KINDS, PaidDevice, Price, PriceBook, PriceSubject, identity, rank
from pertoken.errors import BadInput
from pertoken.installed import install_command
from pertoken.printable import short
from pertoken.state.fleet import Fleet, Host
from pertoken.units import format_utc


def csv_rows(path: Path, text: str) -> list[Mapping[str, str]]:
    """Return the rows of a CSV file by the names of its columns. Raises BadInput naming a line that is not CSV."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        return list(reader)
    except csv.Error as error:
        raise BadInput(f"{path}: line {reader.reader.line_num}: not valid CSV: {error}") from None


REQUIRED = (
    "provider",
    "instance_type",
    "accelerator",
    "n_devices",
    "region",
    "purchase",
    "usd_per_hour",
    "as_of",
    "source",
)
"""Columns of a list; `usd_per_hour` is of the whole instance."""
FETCHED = ("on_demand", "spot")
"""Purchases that a complete list holds."""
OPTIONAL = ("confidence", "note")
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class OfferList:
    """Offers of one list, and the providers that it is complete for."""

    offers: tuple[Offer, ...]
    complete: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """Changes that a list of offers would make."""

    new: tuple[Offer, ...]
    """Nothing was listed under their keys: they count from the day they are dated."""
    changed: tuple[tuple[Offer, Offer], ...]
    """Before and after: the later one counts from now on, so that past costs stay as they are."""
    confirmed: tuple[Offer, ...]
    """The same price with a later date."""
    outdated: int
    """Offers no newer than the known ones, which are left out."""
    refused: tuple[ImplausibleOffer, ...]
    gone: tuple[Offer, ...] = ()
    """Known offers of a complete list's providers that it no longer holds. They stay, with their dates."""

    @property
    def written(self) -> tuple[Offer, ...]:
        """Offers to store."""
        return (*self.new, *(after for _, after in self.changed), *self.confirmed)


def read_list(path: Path, market: Market) -> tuple[Offer, ...]:
    """Return the offers of a CSV or JSON file, each accelerator by its catalog name.

    Raises BadInput naming the file, the row and the column that is wrong.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES // 2**20} MiB: no list of prices is")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    rows = _json(path, text) if path.suffix.lower() == ".json" else csv_rows(path, text)
    if not rows:
        raise BadInput(f"{path}: holds no offer")
    return tuple(_offer(f"{path}: row {number}", row, market) for number, row in enumerate(rows, 1))


def difference(
    offers: Sequence[Offer], market: Market, today: date, now_ts: int, complete: Collection[str] = ()
) -> Difference:
    """Compare a list with the offers known, leaving out what `catalog.coverage` does not believe.

    `complete` are providers of which the list holds every accelerator, on demand and on spot.
    """
    offer_by_key: dict[OfferKey, Offer] = {offer.key: offer for offer in newest(market.all_offers)}
    keys = {offer.key for offer in offers}
    # Prices of the list are held against on-demand prices and regions that are known, too.
    beside = [offer for offer in offer_by_key.values() if offer.key not in keys]
    devices = {(offer.provider, offer.instance_type): offer.n_devices for offer in offer_by_key.values()}
    listed = dict.fromkeys(offers)
    all_faults = faults(
        [*listed, *beside], today, devices, priced_names(accelerator.name for accelerator in market.accelerators)
    )
    refused = tuple(fault for fault in all_faults if fault.offer in listed)
    doubted = {fault.offer for fault in refused}
    new, changed, confirmed, outdated = [], [], [], 0
    for offer in listed:
        if offer in doubted:
            continue
        present_offer = offer_by_key.get(offer.key)
        if present_offer is None:
            new.append(offer)
        elif offer.as_of <= present_offer.as_of:
            outdated += 1
        elif offer.nano_usd_per_device_hour == present_offer.nano_usd_per_device_hour:
            confirmed.append(replace(offer, from_ts=now_ts))
        else:
            changed.append((present_offer, replace(offer, from_ts=now_ts)))
    accelerators = {accelerator.name for accelerator in market.accelerators}
    gone = tuple(
        offer
        for offer in beside
        if offer.provider in complete and offer.purchase in FETCHED and offer.accelerator in accelerators
    )
    return Difference(tuple(new), tuple(changed), tuple(confirmed), outdated, refused, gone)


def _json(path: Path, text: str) -> list[Mapping[str, object]]:
    try:
        rows = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: must be a list of objects with {', '.join(REQUIRED)}")
    return rows


def _offer(where: str, row: Mapping[str, object], market: Market) -> Offer:
    unknown = [name for name in row if name not in (*REQUIRED, *OPTIONAL)]
    if unknown:
        raise BadInput(
            f"{where}: {short(repr(unknown[0]))} is no column; there are {', '.join((*REQUIRED, *OPTIONAL))}"
        )
    values = {name: "" if row.get(name) is None else str(row[name]).strip() for name in (*REQUIRED, *OPTIONAL)}
    missing = [name for name in REQUIRED if not values[name]]
    if missing:
        raise BadInput(f"{where}: {missing[0]} is missing")
    accelerator = market.accelerator(values["accelerator"])
    try:
        n_devices = int(values["n_devices"])
        usd = Decimal(values["usd_per_hour"])
        as_of = date.fromisoformat(values["as_of"])
        if n_devices < 1 or not usd.is_finite() or abs(usd) > 1_000_000:
            raise ValueError("n_devices is above 0, usd_per_hour between 0 and 1,000,000")
    except (ValueError, InvalidOperation) as error:
        raise BadInput(
            f"{where}: n_devices is a whole number, usd_per_hour dollars such as 55.04, as_of a date such as "
            f"2026-11-22: {short(str(error))}"
        ) from None
    return Offer(
        provider=values["provider"].lower(),
        instance_type=values["instance_type"],
        accelerator=accelerator.name if accelerator else values["accelerator"],
        n_devices=n_devices,
        region=values["region"],
        purchase=values["purchase"].lower().replace("-", "_"),
        nano_usd_per_device_hour=per_device(usd, n_devices),
        as_of=as_of,
        source=values["source"],
        confidence=values["confidence"].lower() or "high",
        note=values["note"],
    )


TIMEOUT_S = 30.0
"""Longest that one answer of the lists' server may take: gpuhunt itself sets no limit."""


class ListItem(Protocol):
    """Fields of a gpuhunt.CatalogItem that are read."""

    provider: str
    instance_name: str
    location: str
    price: float
    gpu_count: int
    gpu_name: str | None
    gpu_memory: float | None
    spot: bool


@dataclass(frozen=True, slots=True)
class Converted:
    """Offers of the lists, and how many rows were left out by reason."""

    offers: tuple[Offer, ...]
    left_out: Mapping[str, int]
    missing: tuple[str, ...] = ()
    """Providers without a list, as it could not be fetched."""


def fetch(market: Market, today: date) -> Converted:
    """Return the newest lists, without those that fail. Raises BadInput without the package, or if all fail."""
    try:
        import gpuhunt
    except ImportError:
        raise BadInput(f"gpuhunt is not installed: {install_command('prices')}") from None
    lists = gpuhunt.Catalog(auto_reload=False)
    with _quiet():
        try:
            lists.load()
        except Exception as error:  # whatever its dependencies raise, there is no list
            cause = error.__cause__ or error
            raise BadInput(
                f"the price lists cannot be fetched ({cause}): try again with a network, or use `pertoken prices "
                "import FILE`"
            ) from None
        versions = {name: provider.version for name, provider in lists.catalog.items()}
        items = [item for name in versions for item in lists.query(provider=name, min_gpu_count=1)]
    missing = sorted(ours for name, ours in toml_table("gpuhunt.toml")["providers"].items() if name not in versions)
    return replace(convert(items, versions, market, today), missing=tuple(missing))


@contextmanager
def _quiet() -> Iterator[None]:
    """Bound each answer, and keep what gpuhunt logs of a failure from standing beside our one line."""
    log, timeout = logging.getLogger("gpuhunt"), socket.getdefaulttimeout()
    disabled = log.disabled
    children = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("gpuhunt.")]
    disabled_by_logger = [(logger, logger.disabled) for logger in children]
    try:
        socket.setdefaulttimeout(TIMEOUT_S)
        log.disabled = True
        for logger in children:
            logger.disabled = True
        yield
    finally:
        socket.setdefaulttimeout(timeout)
        log.disabled = disabled
        for logger, was in disabled_by_logger:
            logger.disabled = was


def convert(items: Iterable[ListItem], versions: Mapping[str, str], market: Market, today: date) -> Converted:
    """Return items as offers of whole instances, one for each region; the zones of a region count by the dearest."""
    kinds = {(offer.provider, offer.instance_type): offer.accelerator for offer in market.all_offers}
    left_out: dict[str, int] = defaultdict(int)
    dearest: dict[tuple[str, ...], tuple[ListItem, Offer]] = {}
    for item in items:
        provider = toml_table("gpuhunt.toml")["providers"].get(item.provider)
        if provider is None:
            left_out[f"provider {item.provider} is not mapped"] += 1
            continue
        accelerator = kinds.get((provider, item.instance_name)) or _accelerator(item)
        if accelerator is None:
            left_out["the accelerator or its form factor is not known"] += 1
            continue
        version = versions.get(item.provider, "")
        offer = Offer(
            provider=provider,
            instance_type=item.instance_name,
            accelerator=accelerator,
            n_devices=item.gpu_count,
            region=_region(provider, item.location),
            purchase="spot" if item.spot else "on_demand",
            nano_usd_per_device_hour=per_device(Decimal(str(item.price)), item.gpu_count),
            as_of=_listed_day(version, today),
            source=f"gpuhunt list of {item.provider} {version}".strip(),
            confidence="medium",
            note="the lowest of its zones" if item.spot and provider == "aws" else "",
        )
        present = dearest.get(offer.key)
        if present is None or present[1].nano_usd_per_device_hour < offer.nano_usd_per_device_hour:
            dearest[offer.key] = item, offer
    return Converted(tuple(offer for _, offer in dearest.values()), dict(left_out))


def _accelerator(item: ListItem) -> str | None:
    for row in toml_table("gpuhunt.toml")["accelerator"]:
        if row["name"] != item.gpu_name or row.get("memory_gb") not in (None, item.gpu_memory):
            continue
        if "is" in row:
            return str(row["is"])
        words = row["words"]
        accelerator = max((word for word in words if word in item.instance_name.lower()), key=len, default=None)
        return None if accelerator is None else str(words[accelerator])
    return None


def _region(provider: str, location: str) -> str:
    return re.sub(r"-[a-z]$", "", location) if provider == "gcp" else location


def _listed_day(version: str, today: date) -> date:
    """Return the day a list was made, from its version (`20261120-305`); today's where it has none."""
    try:
        return min(today, date.fromisoformat(version[:8]))
    except ValueError:
        return today


ORDERABLE = (None, "on_demand", "spot")
"""Purchases of hosts that can be ordered again at the same price."""


class _Rental(NamedTuple):
    """Provider, region and purchase that a fleet rents at."""

    provider: str
    region: str
    purchase: str


def set_offers(
    fleet: Fleet, devices: Mapping[int, PaidDevice], prices: PriceBook, market: Market, now_ts: int
) -> tuple[Offer, ...]:
    """Return the prices that people set and bills state, as offers at the providers and regions of a fleet.

    `devices` are those of the fleet by id. A price set by the name of an accelerator is for all its instances; one of a
    bill, or of the CPUs of a host, for the kind of instance that has it. A price of all devices (`gpu`) or of one
    device is for what the fleet has, and what an owned device costs is no price at which another one can be rented.
    """
    return (*_billed(fleet, devices, prices, market, now_ts), *_named(fleet, devices, prices, market, now_ts))


def _billed(
    fleet: Fleet, devices: Mapping[int, PaidDevice], prices: PriceBook, market: Market, now_ts: int
) -> Iterator[Offer]:
    for host in fleet.hosts:
        deciding = fleet.accelerators_on.get(host.host_id, frozenset())
        payers = [device for device in fleet.devices_on(host) if device.device_id in deciding]
        payer_prices = [prices.at(devices[payer.device_id], now_ts) for payer in payers if payer.device_id in devices]
        on_cpus = any(payer.kind == "cpu" and payer.accelerator for payer in payers)
        billed = [
            price for price in payer_prices if price and (price.set_by == BILLED or (on_cpus and not price.listed))
        ]
        rental, instance_type = _rental(host, market), host.placement.instance_type
        if not billed or len(billed) < len(payers) or rental is None or instance_type is None:
            continue
        is_billed = billed[0].set_by == BILLED
        yield Offer(
            provider=rental.provider,
            instance_type=instance_type,
            accelerator=host.placement.accelerator or payers[0].accelerator or "",
            n_devices=host.placement.devices_per_instance or len(billed),
            region=rental.region,
            purchase=rental.purchase,
            nano_usd_per_device_hour=round(sum(price.nano_usd_per_device_hour or 0 for price in billed) / len(billed)),
            as_of=_day(max(price.from_ts or price.set_ts or now_ts for price in billed)),
            source=f"{'the reconciled bill' if is_billed else 'the price that is set'} of {host.name}",
            origin=Origin.BILL if is_billed else Origin.SET,
        )


def _named(
    fleet: Fleet, devices: Mapping[int, PaidDevice], prices: PriceBook, market: Market, now_ts: int
) -> Iterator[Offer]:
    rentals: defaultdict[str | None, set[_Rental]] = defaultdict(set)
    for host in fleet.hosts:
        rental = _rental(host, market)
        rentals[host.placement.accelerator].update([rental] if rental is not None else [])
    on_demand = {rental._replace(purchase="on_demand") for rented in rentals.values() for rental in rented}
    for accelerator in market.accelerators:
        price = _price_by_name(accelerator, devices.values(), prices, market, now_ts)
        if price is None or price.nano_usd_per_device_hour is None:
            continue
        by = f" by {price.set_by}" if price.set_by else ""
        entered = "" if price.entered is None else f", entered as {price.entered.text}"
        end = "" if price.until_ts is None else f"; it ends at {format_utc(price.until_ts)}"
        offer = Offer(
            provider="",
            instance_type="",
            accelerator=accelerator.name,
            n_devices=1,
            region=ANYWHERE,
            purchase="on_demand",
            nano_usd_per_device_hour=price.nano_usd_per_device_hour,
            as_of=_day(price.from_ts or price.set_ts or now_ts),
            source=f"price set for {price.selector}{by}{entered}{end}",
            origin=Origin.SET,
        )
        for rental in sorted(rentals.get(accelerator.name, on_demand)):
            yield from _of_sizes(offer, rental, market)


def _of_sizes(offer: Offer, rental: _Rental, market: Market) -> Iterator[Offer]:
    """Yield an offer for each kind of instance that is listed there; where none is, for each common size."""
    priced = replace(offer, provider=rental.provider, region=rental.region, purchase=rental.purchase)
    listed = [
        listed_offer
        for listed_offer in market.offers(offer.accelerator, rental.purchase)
        if listed_offer.provider == rental.provider and listed_offer.region in (rental.region, ANYWHERE)
    ]
    for listed_offer in listed:
        yield replace(
            priced,
            instance_type=listed_offer.instance_type,
            n_devices=listed_offer.n_devices,
            region=listed_offer.region,
        )
    size = 1
    while not listed and size <= MAX_RANKS:
        yield replace(priced, instance_type=f"{size}-device {offer.accelerator}", n_devices=size)
        size *= 2


def _price_by_name(
    accelerator: Accelerator, devices: Iterable[PaidDevice], prices: PriceBook, market: Market, now_ts: int
) -> Price | None:
    """Return the price that a person set for an accelerator by its name; None if none is set, or only for others.

    A name that names recorded devices is of these alone: `H100` is no price of an H100 NVL where an H100 SXM5 runs.
    """
    price = prices.at(PriceSubject("gpu", accelerator.reported_names[0], ""), now_ts)
    if price is None or price.listed or price.set_by == BILLED or identity(price.selector) in KINDS:
        return None
    named = {market.accelerator(device.name) for device in devices if rank(price.selector, device)}
    return price if not named or accelerator in named else None


def _rental(host: Host, market: Market) -> _Rental | None:
    """Return where a host is rented; None of one that is owned or reserved."""
    placement = host.placement
    if placement.purchase not in ORDERABLE:
        return None
    provider = placement.provider or market.provider or ""
    return _Rental(provider, placement.region or ANYWHERE, placement.purchase or "on_demand")


def _day(ts: int) -> date:
    return datetime.fromtimestamp(ts, UTC).date()
