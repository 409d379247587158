"""A drawn fleet as values: hosts, engines with their true efficiencies, and planted problems."""

from dataclasses import dataclass

from pertoken.demo.scenes import HostType, Scene
from pertoken.demo.simulator.arrivals import Shape
from pertoken.demo.simulator.physics import Truth
from pertoken.state.deployment import Deployment


@dataclass(frozen=True, slots=True)
class DrawnHost:
    """A host of the fleet."""

    name: str
    host_type: HostType


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """Requests of the clients of one engine."""

    shape: Shape
    per_s: float
    """Requests in the mean hour of a week."""
    prompt_len: float
    generated_len: float
    cached: float
    """Share of prompt tokens that a prefix cache holds, if it is switched on."""


@dataclass(frozen=True, slots=True)
class DrawnEngine:
    """One engine: its deployment, its clients' requests, and its true efficiencies."""

    host: str
    port: int
    runs: Deployment
    client_load: ClientLoad
    truth: Truth
    before: Deployment | None = None
    """Its deployment in the first part of the history; None without a change."""
    changed_share: float = 0.5
    """Share of the history before the change from `before` to `runs`."""
    stuck_h: float = 0.0
    """Hours at the end of the history in which it serves nothing."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A planted problem."""

    scene: Scene
    service: str | None
    """None for hosts that serve nothing."""
    hosts: tuple[str, ...]
    severity: float | None = None

    @property
    def target(self) -> str:
        """Target of advice on the problem, as advice names it."""
        if self.service is None:
            return self.hosts[0]
        return f"{self.service} on {self.hosts[0]}" if self.scene.by_deployment else self.service


@dataclass(frozen=True, slots=True)
class DrawnFleet:
    """A drawn fleet with its problems and the targets without one.

    `followed` are problems that were mended before the end, as the advisor proposed; their targets are healthy.
    """

    seed: int
    hosts: tuple[DrawnHost, ...]
    engines: tuple[DrawnEngine, ...]
    problems: tuple[Problem, ...]
    healthy: tuple[str, ...]
    followed: tuple[Problem, ...] = ()

    def host(self, name: str) -> DrawnHost:
        """Return a host by its name."""
        return next(host for host in self.hosts if host.name == name)

    def of_service(self, name: str | None) -> tuple[DrawnEngine, ...]:
        """Return the engines of a service; an empty tuple for None."""
        return tuple(engine for engine in self.engines if engine.runs.served_model == name)
