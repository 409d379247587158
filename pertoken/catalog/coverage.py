"""Limits of the catalog's prices: accelerators that have prices alone, and prices that no dated public list states."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

CPU = "CPU"
"""Accelerator of an instance without any: its offer prices the CPUs of a host together."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Accelerator with list prices for break-evens, which no rule proposes."""

    name: str
    vendor: str
    why: str
    source: str
    as_of: date


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Offers that no dated public list states, and who does."""

    why: str
    ask: str
    """Page or command that states the price."""
    as_of: date
    provider: str | None = None
    """None: any."""
    accelerators: tuple[str, ...] = ()
    """Empty: any."""
    purchases: tuple[str, ...] = ()
    """Empty: any."""

    def covers(self, provider: str | None, accelerator: str | None, purchase: str | None) -> bool:
        """Return whether it is about such an offer; None stands for any."""
        return (
            (None in (provider, self.provider) or provider == self.provider)
            and (accelerator is None or not self.accelerators or accelerator in self.accelerators)
            and (purchase is None or not self.purchases or purchase in self.purchases)
        )

    @property
    def text(self) -> str:
        """The reason and where to ask, as a refusal states them."""
        return f"{self.why} ({self.as_of}); ask: {self.ask}"


@dataclass(frozen=True, slots=True)
class Unstated:
    """Figure of a provider that is no instance price, and who states it."""

    provider: str
    why: str
    ask: str
    as_of: date
    models: tuple[str, ...] = ()


@cache
def unsupported() -> tuple[Unsupported, ...]:
    """Return the accelerators that have prices alone."""
    return tuple(Unsupported(**row) for row in _rows("unsupported"))


def priced_names(accelerators: Iterable[str]) -> frozenset[str]:
    """Return the names that an offer may be of: accelerators, those that have prices alone, and `CPU`."""
    return frozenset((CPU, *accelerators, *(device.name for device in unsupported())))


@cache
def unpriced_offers() -> tuple[Unpriced, ...]:
    """Return the offers that have no row, most exact first as listed."""
    return tuple(Unpriced(**row) for row in _rows("unpriced"))


@cache
def unstated_interruptions() -> tuple[Unstated, ...]:
    """Return the clouds that publish no rate of interruption."""
    return tuple(Unstated(**row) for row in _rows("interruptions"))


@cache
def unstated_tokens() -> tuple[Unstated, ...]:
    """Return the serverless APIs without a row for a model of the catalog."""
    return tuple(Unstated(**row) for row in _rows("tokens"))


def unpriced(provider: str, accelerator: str, purchase: str) -> Unpriced | None:
    """Return why an offer has no row; None where the catalog states nothing about it."""
    return next((entry for entry in unpriced_offers() if entry.covers(provider, accelerator, purchase)), None)


def _rows(table: str) -> list[dict[str, Any]]:
    rows: list[Mapping[str, Any]] = _tables()[table]
    return [
        {
            name: date.fromisoformat(value) if name == "as_of" else tuple(value) if isinstance(value, list) else value
            for name, value in row.items()
        }
        for row in rows
    ]


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.catalog").joinpath("coverage.toml").read_text(encoding="utf-8"))
