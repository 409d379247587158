"""Scenes of a demo: the host types, services and planted problems of `fleet.toml`, as values."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

HEALTHY = "healthy"
"""Kind of a scene without a planted problem."""
FOLLOWED = "followed"
"""Kind of the scene whose problem was mended a week before the end, as the advisor proposed."""


@dataclass(frozen=True, slots=True)
class HostType:
    """Type of a rented or owned host."""

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
    """Only for an owned host."""
    nameplate_kw: float | None = None

    @property
    def owned(self) -> bool:
        """Whether the host is owned, not rented."""
        return self.capex_usd is not None


@dataclass(frozen=True, slots=True)
class Severity:
    """Quantity that is drawn log-uniformly and sets how large the problem of a scene is."""

    of: str
    """`knob`, `share`, `version` or `silent`."""
    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One service on its own hosts, with its planted problem."""

    kind: str
    host_types: tuple[str, ...]
    rules: tuple[str, ...] = ()
    """Ids of the rules whose proposal counts as finding the problem."""
    model: str | None = None
    """None for hosts that serve nothing."""
    names: tuple[str, ...] = ()
    """Candidate names of the service."""
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
    """`version` or `knobs` of its earlier epoch, where they differ; empty without one."""
    severity: Severity | None = None
    stuck_h: tuple[float, float] | None = None
    isolation: str | None = None
    """Value of `isolation` in the service's settings."""
    by_deployment: bool = False
    """Whether its rules run per deployment, so that the target of advice includes the host."""
    days: int = 0
    """Days of history that its rules need."""
    fix: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hosts(self) -> int:
        """Number of hosts of the scene."""
        return self.replicas


@cache
def host_types() -> Mapping[str, HostType]:
    """Return the host types by name."""
    return {name: HostType(name, **row) for name, row in _table()["host_types"].items()}


@cache
def scenes() -> tuple[Scene, ...]:
    """Return all scenes, healthy ones included."""
    return tuple(map(_scene, _table()["scene"]))


def _scene(row: Mapping[str, Any]) -> Scene:
    common = _table()["defaults"]
    fields = {**{name: value for name, value in common.items() if name != "knobs"}, **row}
    fields["knobs"] = {**common["knobs"], **row.get("knobs", {})}
    for name in ("host_types", "rules", "names", "running", "load", "stuck_h"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "severity" in fields:
        fields["severity"] = _severity(fields["severity"])
    return Scene(**fields)


def _severity(row: Mapping[str, Any]) -> Severity:
    (of, name), *_ = ((key, value) for key, value in row.items() if key not in ("low", "high"))
    return Severity(of, name, row["low"], row["high"])


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files("pertoken.demo").joinpath("fleet.toml").read_text(encoding="utf-8"))
