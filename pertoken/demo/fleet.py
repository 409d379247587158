"""A drawn fleet as values: hosts, engines with their hidden truth, and the problems among them."""

from dataclasses import dataclass

from pertoken.demo.scenes import Place, Scene
from pertoken.demo.simulator.arrivals import Shape
from pertoken.demo.simulator.physics import Truth
from pertoken.state.deployment import Deployment


@dataclass(frozen=True, slots=True)
class DrawnHost:
    """A host of the fleet."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Asked:
    """What clients ask of one engine."""

    shape: Shape
    per_s: float
    """Requests in the mean hour of a week."""
    prompt_len: float
    generated_len: float
    cached: float
    """Share of prompt tokens that a prefix cache finds where there is one."""


@dataclass(frozen=True, slots=True)
class DrawnEngine:
    """One engine: how it runs, what is asked of it, and what is true of it."""

    host: str
    port: int
    runs: Deployment
    asked: Asked
    truth: Truth
    before: Deployment | None = None
    """What it ran in the first part of the history."""
    changed_share: float = 0.5
    """Of the history, after which it runs as it does now."""
    stuck_h: float = 0.0
    """Hours before the end since when it serves nothing."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that was planted."""

    scene: Scene
    service: str | None
    """None of hosts that serve nothing."""
    hosts: tuple[str, ...]
    severity: float | None = None

    @property
    def target(self) -> str:
        """What advice on it is about, as advice names it."""
        if self.service is None:
            return self.hosts[0]
        return f"{self.service} on {self.hosts[0]}" if self.scene.by_deployment else self.service


@dataclass(frozen=True, slots=True)
class DrawnFleet:
    """All of it."""

    seed: int
    hosts: tuple[DrawnHost, ...]
    engines: tuple[DrawnEngine, ...]
    problems: tuple[Problem, ...]
    healthy: tuple[str, ...]

    def host(self, name: str) -> DrawnHost:
        """Return a host by its name."""
        return next(each for each in self.hosts if each.name == name)

    def of_service(self, name: str | None) -> tuple[DrawnEngine, ...]:
        """Return the engines of a service; none for None."""
        return tuple(each for each in self.engines if each.runs.served_model == name)
