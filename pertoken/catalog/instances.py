"""CPUs and memory of instance types: `instances.csv`, each with its source and date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache

from pertoken.catalog.offers import rows, toml_table

GIB = 2**30


@dataclass(frozen=True, slots=True)
class InstanceSize:
    """CPUs and memory of an instance type, as its provider's documents list them."""

    cpus: int
    memory_bytes: int


def instance_size(provider: str, instance_type: str) -> InstanceSize | None:
    """Return the size of an instance type; None if it is not listed."""
    return _sizes().get((provider, instance_type))


@cache
def _sizes() -> Mapping[tuple[str, str], InstanceSize]:
    return {
        (row["provider"], row["instance_type"]): InstanceSize(int(row["cpus"]), int(row["memory_gib"]) * GIB)
        for row in rows("instances.csv")
    }


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG profile, and its fractions of the device's compute and memory."""

    profile: str
    """Name for `nvidia-smi mig -cgi`."""
    compute: int
    compute_of: int
    memory: int
    memory_of: int

    @property
    def memory_share(self) -> float:
        """Fraction of the device's memory and of its bandwidth, 0 to 1."""
        return self.memory / self.memory_of


def slices(accelerator: str) -> tuple[Slice, ...]:
    """Return the MIG profiles of an accelerator by its catalog name, smallest first; empty if it has none."""
    return _slices().get(accelerator, ())


def fit_together(wanted: Iterable[Slice]) -> bool:
    """Return whether one device has room for all of these profiles."""
    profiles = tuple(wanted)
    return all(
        sum(getattr(profile, part) for profile in profiles) <= getattr(profiles[0], f"{part}_of")
        for part in ("compute", "memory")
    )


@cache
def _slices() -> dict[str, tuple[Slice, ...]]:
    by_accelerator: dict[str, list[Slice]] = {}
    for row in rows("slices.csv"):
        parts = (int(row[name]) for name in ("compute", "compute_of", "memory", "memory_of"))
        profile = Slice(row["profile"], *parts)
        for name in row["accelerators"].split(";"):
            by_accelerator.setdefault(name, []).append(profile)
    return {
        name: tuple(sorted(profiles, key=lambda profile: (profile.memory, profile.compute)))
        for name, profiles in by_accelerator.items()
    }


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
    return tuple(InterruptionRate(**row) for row in toml_table("spot.toml")["rates"])


def interruption_rate(provider: str | None, instance_type: str | None) -> InterruptionRate | None:
    """Return the rate of an instance type; None where its cloud publishes none."""
    family = (instance_type or "").partition(".")[0]
    return next((rate for rate in interruption_rates() if (rate.provider, rate.family) == (provider, family)), None)


@dataclass(frozen=True, slots=True)
class Term:
    """One number of the cost of ownership that its owner may state."""

    value: float
    """Default value."""
    low: float
    high: float
    usual: str
    meaning: str


@dataclass(frozen=True, slots=True)
class NodePower:
    """Model of the power of a server at its plug."""

    rest_share: float
    """Watts of all but the accelerators without load, for each watt of their power limits."""
    load_factor: float
    """Watts at the plug for each watt of the accelerators."""

    def watts(self, accelerator_w: float, power_limit_w: float) -> float:
        """Return the watts at the plug."""
        return self.rest_share * power_limit_w + self.load_factor * accelerator_w


@cache
def node_power() -> NodePower:
    """Return the model where nothing was measured at the plug."""
    node = toml_table("owned.toml")["node"]
    return NodePower(node["rest_share"], node["load_factor"])


@cache
def terms() -> Mapping[str, Term]:
    """Return the terms by name."""
    return {name: Term(**row) for name, row in toml_table("owned.toml")["terms"].items()}
