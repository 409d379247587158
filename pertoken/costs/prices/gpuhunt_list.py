"""The public price lists that the package gpuhunt collects, as offers."""

import logging
import re
import socket
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer, per_device
from pertoken.errors import BadInput
from pertoken.installed import install_command

TIMEOUT_S = 30.0
"""Longest that one answer of the lists' server may take: gpuhunt itself sets no limit."""


class Item(Protocol):
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
    """Providers whose lists could not be fetched."""


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
        known = {name: provider.version for name, provider in lists.catalog.items()}
        items = [item for name in known for item in lists.query(provider=name, min_gpu_count=1)]
    missing = sorted(ours for name, ours in _names()["providers"].items() if name not in known)
    return replace(convert(items, known, market, today), missing=tuple(missing))


@contextmanager
def _quiet() -> Iterator[None]:
    """Bound each answer, and keep what gpuhunt logs of a failure from standing beside our one line."""
    log, timeout = logging.getLogger("gpuhunt"), socket.getdefaulttimeout()
    disabled = log.disabled
    children = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("gpuhunt.")]
    before = [(logger, logger.disabled) for logger in children]
    try:
        socket.setdefaulttimeout(TIMEOUT_S)
        log.disabled = True
        for logger in children:
            logger.disabled = True
        yield
    finally:
        socket.setdefaulttimeout(timeout)
        log.disabled = disabled
        for logger, was in before:
            logger.disabled = was


def convert(items: Iterable[Item], versions: Mapping[str, str], market: Market, today: date) -> Converted:
    """Return items as offers of whole instances, one for each region; the zones of a region count by the dearest."""
    kinds = {(offer.provider, offer.instance_type): offer.accelerator for offer in market.all_offers}
    left_out: dict[str, int] = defaultdict(int)
    dearest: dict[tuple[str, ...], tuple[Item, Offer]] = {}
    for item in items:
        provider = _names()["providers"].get(item.provider)
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
            as_of=_day(version, today),
            source=f"gpuhunt list of {item.provider} {version}".strip(),
            confidence="medium",
            note="the lowest of its zones" if item.spot and provider == "aws" else "",
        )
        present = dearest.get(offer.key)
        if present is None or present[1].nano_usd_per_device_hour < offer.nano_usd_per_device_hour:
            dearest[offer.key] = item, offer
    return Converted(tuple(offer for _, offer in dearest.values()), dict(left_out))


def _accelerator(item: Item) -> str | None:
    for row in _names()["accelerator"]:
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


def _day(version: str, today: date) -> date:
    """Return the day a list was made, from its version (`20261120-305`); today's where it has none."""
    try:
        return min(today, date.fromisoformat(version[:8]))
    except ValueError:
        return today


@cache
def _names() -> Mapping[str, Any]:
    return tomllib.loads(files("pertoken.catalog").joinpath("gpuhunt.toml").read_text(encoding="utf-8"))
