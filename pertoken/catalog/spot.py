"""Rates at which spot instances are interrupted, as published by their clouds."""

import tomllib
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class InterruptionRate:
    """Part of the spot instances of a family that a cloud took back within a month."""

    provider: str
    family: str
    """The instance type up to its first dot: `p5` for `p5.48xlarge`."""
    low: float
    high: float
    as_of: date
    source: str
    confidence: str


@cache
def interruption_rates() -> tuple[InterruptionRate, ...]:
    """Return all published rates."""
    table = tomllib.loads(files("pertoken.catalog").joinpath("spot.toml").read_text(encoding="utf-8"))
    return tuple(InterruptionRate(**{**row, "as_of": date.fromisoformat(row["as_of"])}) for row in table["rates"])


def interruption_rate(provider: str | None, instance_type: str | None) -> InterruptionRate | None:
    """Return the rate of an instance type; None where its cloud publishes none."""
    family = (instance_type or "").partition(".")[0]
    return next((rate for rate in interruption_rates() if (rate.provider, rate.family) == (provider, family)), None)
