"""Scenes of a demo: what `fleet.toml` says of places, services and planted problems, as values."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

HEALTHY = "healthy"
"""Kind of a scene in which nothing is planted."""


@dataclass(frozen=True, slots=True)
class Place:
    """A host as it is rented or owned."""

    name: str
    accelerator: str
    """Catalog name."""
    devices: int
    cpus: int
    memory_gib: int
    clock: int
    """Highest SM clock, MHz."""
    provider: str | None = None
    instance_type: str | None = None
    region: str | None = None
    purchase: str | None = None
    capex_usd: float | None = None
    """Of a host that is owned."""
    nameplate_kw: float | None = None

    @property
    def owned(self) -> bool:
        """Whether somebody bought it."""
        return self.capex_usd is not None


@dataclass(frozen=True, slots=True)
class Severity:
    """What of a scene is drawn log-uniformly to make its problem larger or smaller."""

    of: str
    """`knob`, `share`, `version` or `silent`."""
    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One service on hosts of its own, with the problem that is planted in it."""

    kind: str
    places: tuple[str, ...]
    rules: tuple[str, ...] = ()
    """Ids of rules that count as having found the problem."""
    model: str | None = None
    """None of hosts that serve nothing."""
    names: tuple[str, ...] = ()
    """Names of services to choose from."""
    engine: str = "vllm"
    version: str = ""
    replicas: int = 1
    trace: str = "conversation"
    prompt_len: float = 0.0
    generated_len: float = 0.0
    cached: float = 0.0
    running: tuple[float, float] | None = None
    load: tuple[float, float] | None = None
    peak_to_trough: float = 3.0
    weekend: float = 0.6
    knobs: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    """What an earlier epoch of it ran."""
    severity: Severity | None = None
    stuck_h: tuple[float, float] | None = None
    isolation: str | None = None
    """As `isolation` of a service's settings."""
    by_deployment: bool = False
    """Whether its rules look at single deployments, so that advice names the host, too."""
    days: int = 0
    """Days of history without which no rule could find it."""
    fix: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hosts(self) -> int:
        """Hosts that it takes."""
        return self.replicas


@cache
def places() -> Mapping[str, Place]:
    """Return the places by name."""
    return {name: Place(name, **row) for name, row in _table()["places"].items()}


@cache
def scenes() -> tuple[Scene, ...]:
    """Return all scenes, healthy ones among them."""
    return tuple(map(_scene, _table()["scene"]))


def _scene(row: Mapping[str, Any]) -> Scene:
    common = _table()["defaults"]
    found = {**{name: value for name, value in common.items() if name != "knobs"}, **row}
    found["knobs"] = {**common["knobs"], **row.get("knobs", {})}
    for name in ("places", "rules", "names", "running", "load", "stuck_h"):
        if name in found:
            found[name] = tuple(found[name])
    if "severity" in found:
        found["severity"] = _severity(found["severity"])
    return Scene(**found)


def _severity(row: Mapping[str, Any]) -> Severity:
    (of, name), *_ = ((key, value) for key, value in row.items() if key not in ("low", "high"))
    return Severity(of, name, row["low"], row["high"])


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files("pertoken.demo").joinpath("fleet.toml").read_text(encoding="utf-8"))
