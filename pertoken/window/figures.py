"""Quotients of sums, each None where a part of it is not known."""

from collections.abc import Mapping, Sequence
from typing import Any

from pertoken.metrics import SERIES
from pertoken.metrics.series import Gauge
from pertoken.units import MTOK


def newest(sums: Any | None, name: str) -> float | None:
    """Return the gauge of a series over all time of a row of sums, idle time included: what screens label "now"."""
    computation = SERIES[name].computation
    assert isinstance(computation, Gauge)
    (stored,) = computation.stored
    return mean(sums, stored, computation.per_unit)


def mean(row: Any | None, name: str, scale: float) -> float | None:
    """Return the mean of a gauge in a row of sums, or in a mapping of them, in its own unit."""
    if row is None:
        return None
    if isinstance(row, Mapping):
        return ratio(row.get(f"{name}_sum"), row.get(f"{name}_n"), scale)
    return ratio(getattr(row, f"{name}_sum"), getattr(row, f"{name}_n"), scale)


def ratio(numerator: int | None, denominator: int | None, scale: float) -> float | None:
    """Return a quotient by a scale; None for unknown parts or a zero denominator."""
    return numerator / denominator / scale if numerator is not None and denominator else None


def rate(sums: Mapping[str, Any], name: str) -> float | None:
    """Return a count per second of the summed time."""
    counted, ms = sums.get(name), sums.get("duration_ms")
    return counted * 1000 / ms if counted is not None and ms else None


def per_mtok(nano_usd: int | None, tokens: int | None) -> int | None:
    """Return nano-USD per million tokens; None without tokens."""
    return round(nano_usd * MTOK / tokens) if nano_usd is not None and tokens else None


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of the known values; None if all are unknown."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def whole(value: float | None) -> int | None:
    """Return the value rounded to an integer."""
    return None if value is None else round(value)
