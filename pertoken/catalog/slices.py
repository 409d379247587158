"""The slices that a device can be divided into (NVIDIA MIG profiles): `slices.csv`, each with its source and date."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Slice:
    """A profile, and the parts of the device's compute and memory that it takes."""

    profile: str
    """As `nvidia-smi mig -cgi` takes it."""
    compute: int
    compute_of: int
    memory: int
    memory_of: int

    @property
    def memory_share(self) -> float:
        """Part of the device's memory and of its bandwidth, 0 to 1."""
        return self.memory / self.memory_of


def slices(accelerator: str) -> tuple[Slice, ...]:
    """Return the slices of an accelerator by its catalog name, smallest first; none where it cannot be divided."""
    return _slices().get(accelerator, ())


def fit_together(wanted: Iterable[Slice]) -> bool:
    """Return whether one device holds all of these slices."""
    known = tuple(wanted)
    return all(
        sum(getattr(profile, part) for profile in known) <= getattr(known[0], f"{part}_of")
        for part in ("compute", "memory")
    )


@cache
def _slices() -> dict[str, tuple[Slice, ...]]:
    by_accelerator: dict[str, list[Slice]] = {}
    with files("pertoken.catalog").joinpath("slices.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            parts = (int(row[name]) for name in ("compute", "compute_of", "memory", "memory_of"))
            made = Slice(row["profile"], *parts)
            for name in row["accelerators"].split(";"):
                by_accelerator.setdefault(name, []).append(made)
    return {
        name: tuple(sorted(profiles, key=lambda profile: (profile.memory, profile.compute)))
        for name, profiles in by_accelerator.items()
    }
