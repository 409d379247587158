"""Service: deployments behind one name that clients call, with demand, objectives and limits."""

from dataclasses import dataclass, field, replace
from typing import Any

from pertoken.state.demand import Demand, Times, To
from pertoken.state.deployment import Deployment
from pertoken.state.errors import InvalidEdit
from pertoken.state.knobs import checked
from pertoken.state.placement import Placement
from pertoken.state.schedule import Schedule
from pertoken.units import counted

FEWEST = "fewest"
"""As many replicas as hold the SLO at p95 demand, at least `min_replicas`, with the spare ones that are set."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency objectives, milliseconds; None where none is set."""

    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p95_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Deployments behind one name that clients call. Edits return a copy; pricing chooses the replicas to release."""

    name: str
    deployments: tuple[Deployment, ...] = ()
    demand: Demand = field(default_factory=Demand)
    slo: Slo = field(default_factory=Slo)
    min_replicas: int = 1
    spare_replicas: int = 0
    """Replicas beyond what the demand needs (N+1 is 1)."""
    isolation: str | None = None
    """`tenant`: no device, cache or engine is shared with other services."""
    forbidden: tuple[str, ...] = ()
    """What no proposal may change, in the words of the setting `forbid`."""
    quality_gate: bool = False
    """Whether a change that can alter outputs is refused until a person evaluated it."""
    quality_passed: tuple[str, ...] = ()
    """Changes that a person evaluated: `FIELD=VALUE`, or `FIELD` for any value."""
    labels: tuple[tuple[str, str], ...] = ()
    schedule: Schedule = field(default_factory=Schedule)
    replicas: int | str | None = None
    """A number of replicas, `FEWEST`, or None for as many as there are."""

    def passed(self, field: str, value: object) -> bool:
        """Return whether a person evaluated a value of a field: `service.passed("model", "Qwen/Qwen3-8B")`."""
        names = {str(value), str(value).rpartition("/")[2]}  # a model may be named without its organization
        return field in self.quality_passed or any(f"{field}={name}" in self.quality_passed for name in names)

    def but(self, **changes: Any) -> "Service":
        """Return this service with other knobs on each of its deployments.

        Raises UnknownKnob and InvalidEdit as `Deployment.but` does.
        """
        values = checked(changes)
        deployments = (
            replace(deployment, **values, edited=(*deployment.edited, *changes)) for deployment in self.deployments
        )
        return replace(self, deployments=tuple(deployments))

    def on(self, placement: Placement, *, all_but: int = 0) -> "Service":
        """Return this service on another placement, `all_but` of its deployments (the first by id) staying.

        Raises InvalidEdit if that moves none.
        """
        if type(all_but) is not int or not 0 <= all_but < len(self.deployments):
            raise InvalidEdit(
                f"all_but={all_but!r} moves nothing: {self.name} has {counted(len(self.deployments), 'deployment')}"
            )
        staying = set(sorted(deployment.deployment_id for deployment in self.deployments)[:all_but])
        return replace(
            self,
            deployments=tuple(
                deployment if deployment.deployment_id in staying else deployment.on(placement)
                for deployment in self.deployments
            ),
        )

    def resized(self) -> "Service":
        """Return this service with the fewest replicas that hold its demand within the SLO."""
        return replace(self, replicas=FEWEST)

    def scaled_to(self, replicas: int) -> "Service":
        """Return this service with a number of replicas.

        Raises InvalidEdit below 1 (use `scheduled` for none) or for what is no whole number.
        """
        if type(replicas) is not int or replicas < 1:
            raise InvalidEdit(f"scaled_to({replicas!r}) is not possible: use a whole number above 0")
        return replace(self, replicas=replicas)

    def serving(self, **changes: Times | To) -> "Service":
        """Return this service with another demand: `service.serving(output_len=times(0.7))`; see `Demand.serving`."""
        return replace(self, demand=self.demand.serving(**changes))

    def scheduled(self, schedule: Schedule) -> "Service":
        """Return this service with replicas by hour of week.

        Raises InvalidEdit for what is no Schedule.
        """
        if not isinstance(schedule, Schedule):
            raise InvalidEdit(f"{schedule!r} is not a Schedule")
        return replace(self, schedule=schedule)

    def expecting(self, low: float, likely: float, high: float, source: str) -> "Service":
        """Return this service with a rule's own expectation of each deployment's speed; see `Expectation`."""
        return replace(
            self, deployments=tuple(deployment.expecting(low, likely, high, source) for deployment in self.deployments)
        )
