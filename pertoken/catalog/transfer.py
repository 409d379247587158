"""Costs of a move between places beside its instances: rates of data that leaves a provider, and shortest terms."""

import tomllib
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from pertoken.units import NANO_USD

INTERNET, REGION = "internet", "region"
"""Destinations of a rate: another provider or a client, and another region of the same provider."""


@dataclass(frozen=True, slots=True)
class TransferRate:
    """List price of data that leaves a provider."""

    usd_per_gb: float
    max_usd_per_gb: float
    """Of its dearest published pair of places."""
    confidence: str
    """As of a list price: `high`, `medium` or `low`."""
    source: str
    as_of: date

    @property
    def nano_usd_per_byte(self) -> tuple[float, float]:
        """The usual and the largest rate."""
        return self.usd_per_gb * NANO_USD / 1e9, self.max_usd_per_gb * NANO_USD / 1e9


@dataclass(frozen=True, slots=True)
class MinimumTerm:
    """Shortest time that a provider bills an instance for."""

    seconds: int
    source: str
    as_of: date


def transfer_rate(provider: str | None, to: str) -> TransferRate | None:
    """Return the rate of data that leaves a provider, `to` `INTERNET` or `REGION`; None if it is not known."""
    for row in _tables()["rate"]:
        if (row["provider"], row["to"]) == (provider, to):
            row = {name: value for name, value in row.items() if name not in ("provider", "to")}
            return TransferRate(**row | {"as_of": _as_of(row)})
    return None


def minimum_term(provider: str | None) -> MinimumTerm | None:
    """Return the shortest billed time of instances of a provider; None if it is not known."""
    for row in _tables()["term"]:
        if row["provider"] == provider:
            return MinimumTerm(row["seconds"], row["source"], _as_of(row))
    return None


def bytes_per_token() -> tuple[float, float]:
    """Return the bytes of a token as text, and as an event of a streamed answer."""
    values = _tables()["bytes_per_token"]
    return float(values["text"]), float(values["streamed"])


def hours_both_run() -> tuple[float, float, float]:
    """Return the fewest, likely and most hours in which the old and the new instances of a move both run."""
    fewest, likely, most = _tables()["both_run"]["hours"]
    return float(fewest), float(likely), float(most)


def _as_of(row: dict[str, Any]) -> date:
    return date.fromisoformat(row["as_of"])


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.catalog").joinpath("transfer.toml").read_text(encoding="utf-8"))
