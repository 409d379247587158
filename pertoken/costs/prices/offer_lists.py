"""Lists of offers that a person imports from a file, and the changes they would make."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pertoken.catalog.coverage import Fault, faults, priced_names
from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer, OfferKey, newest, per_device
from pertoken.costs.csv_rows import csv_rows
from pertoken.errors import BadInput
from pertoken.printable import short

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
    """Offers of one list, and the providers of which it holds every accelerator."""

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
    """Offers no newer than what is known, which are left out."""
    refused: tuple[Fault, ...]
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
    """Compare a list with the offers known, leaving out what `catalog.sanity` does not believe.

    `complete` are providers of which the list holds every accelerator, on demand and on spot.
    """
    known: dict[OfferKey, Offer] = {offer.key: offer for offer in newest(market.all_offers)}
    keys = {offer.key for offer in offers}
    # Prices of the list are held against on-demand prices and regions that are known, too.
    beside = [offer for offer in known.values() if offer.key not in keys]
    devices = {(offer.provider, offer.instance_type): offer.n_devices for offer in known.values()}
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
        before = known.get(offer.key)
        if before is None:
            new.append(offer)
        elif offer.as_of <= before.as_of:
            outdated += 1
        elif offer.nano_usd_per_device_hour == before.nano_usd_per_device_hour:
            confirmed.append(replace(offer, from_ts=now_ts))
        else:
            changed.append((before, replace(offer, from_ts=now_ts)))
    accelerators = {accelerator.name for accelerator in market.accelerators}
    gone = tuple(
        offer
        for offer in beside
        if offer.provider in complete and offer.purchase in FETCHED and offer.accelerator in accelerators
    )
    return Difference(tuple(new), tuple(changed), tuple(confirmed), outdated, refused, gone)


def _json(path: Path, text: str) -> list[Mapping[str, Any]]:
    try:
        rows = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: must be a list of objects with {', '.join(REQUIRED)}")
    return rows


def _offer(where: str, row: Mapping[str, Any], market: Market) -> Offer:
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
