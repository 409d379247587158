"""CPUs and memory of instance types: `instances.csv`, each with its source and date."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pertoken.catalog.offers import rows

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
