"""Quotients of sums, each None where a part of it is not known."""

from collections.abc import Mapping, Sequence
from typing import Any

from pertoken.units import MTOK


def mean(row: Any | None, name: str, scale: float) -> float | None:
    """Of a gauge in a row of sums, in its own unit."""
    return None if row is None else ratio(getattr(row, f"{name}_sum"), getattr(row, f"{name}_n"), scale)


def ratio(numerator: int | None, denominator: int | None, scale: float) -> float | None:
    """Quotient by a scale; None by 0, too."""
    return numerator / denominator / scale if numerator is not None and denominator else None


def rate(sums: Mapping[str, Any], name: str) -> float | None:
    """Of a count, per second of the time summed."""
    counted, ms = sums.get(name), sums.get("duration_ms")
    return counted * 1000 / ms if counted is not None and ms else None


def per_mtok(nano_usd: int | None, tokens: int | None) -> int | None:
    """Nano-USD for a million tokens; None for none."""
    return round(nano_usd * MTOK / tokens) if nano_usd is not None and tokens else None


def total(values: Sequence[float | None]) -> float | None:
    """Sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def whole(value: float | None) -> int | None:
    """Rounded to an integer."""
    return None if value is None else round(value)
