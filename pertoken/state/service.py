"""Service: deployments behind one name that clients call, with demand, objectives and limits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pertoken.provenance import Provenance
from pertoken.state.deployment import Deployment, InvalidEdit, Placement, checked
from pertoken.units import counted

HOURS_OF_WEEK = 168
"""Hours of a week, Monday 00:00 UTC first."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its origin. An assumed quantity yields a break-even and enters no total until a person confirms
    it."""

    value: float
    provenance: Provenance
    source: str = ""
    confirmed: bool = False
    """For an assumed quantity: whether a person supplied it, so that it is priced."""

    def __post_init__(self) -> None:
        _check("a quantity of", self.value)


@dataclass(frozen=True, slots=True)
class Times:
    """A change relative to the present; see `times`."""

    factor: float
    source: str = ""
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class To:
    """A change to a value; see `to`."""

    value: float
    source: str = ""
    confirmed: bool = False


def times(factor: float, source: str = "", *, confirmed: bool = False) -> Times:
    """Multiply the present value: `service.serving(output_len=times(0.7))`. `source` names where the factor is from.

    `confirmed`: a person supplied the factor, in an option of the rule. Only then a change of demand is priced.
    """
    _check("times", factor)
    return Times(factor, source, confirmed)


def to(value: float, source: str = "", *, confirmed: bool = False) -> To:
    """Replace the present value: `service.serving(response_cache_share=to(0.2))`. `confirmed` as in `times`."""
    _check("to", value)
    return To(value, source, confirmed)


SHARES = ("cached_share", "response_cache_share")
"""Fields of `Demand` that are parts of a whole, 0 to 1."""
LIMITS = {"requests_per_s": (1e-9, 1e6), "prompt_len": (1.0, 1e8), "output_len": (1.0, 1e8)}
"""Range that a proposal may give a field: a service that gets no requests is released, not forecast."""
EDITABLE = (*LIMITS, *SHARES)
"""Fields of `Demand` that `serving()` changes."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests that clients send to a service. None is unknown."""

    requests_per_s: Quantity | None = None
    """95th percentile over the minutes of the window, of all deployments together."""
    requests_by_hour_of_week: tuple[float | None, ...] = (None,) * HOURS_OF_WEEK
    """Mean requests/s of each hour of the week, Monday 00:00 UTC first; None where the window has no such hour."""
    prompt_len: Quantity | None = None
    """Mean prompt tokens per request, cached included."""
    output_len: Quantity | None = None
    """Mean generated tokens per request."""
    cached_share: Quantity | None = None
    """Part of the prompt tokens found in the prefix cache."""
    response_cache_share: Quantity | None = None
    """Part of the requests answered from a response cache, which no engine sees."""
    tenants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.requests_by_hour_of_week) != HOURS_OF_WEEK:
            raise InvalidEdit(f"a week has {HOURS_OF_WEEK} hours, not {len(self.requests_by_hour_of_week)}")
        for name in SHARES:
            share = getattr(self, name)
            if share is not None and share.value > 1:
                raise InvalidEdit(f"{name}={share.value:g} is not possible: use a share from 0 to 1")

    def serving(self, **changes: Times | To) -> Demand:
        """Return this demand with changed fields, each by `times(x)` or `to(x)`; changed fields are assumed.

        Raises InvalidEdit for another field, a bare number, `times` of an unknown value, or a result out of range.
        """
        demand = self
        for name, change in changes.items():
            if name not in EDITABLE:
                raise InvalidEdit(f"{name!r} is not a field of a demand; known: {', '.join(EDITABLE)}")
            if not isinstance(change, Times | To):
                raise InvalidEdit(f"{name}={change!r}: use times(x), relative to the present, or to(x), a new value")
            changed: Any = {name: _changed(name, getattr(self, name), change)}
            demand = replace(demand, **changed)
        if "requests_per_s" in changes:
            demand = replace(demand, requests_by_hour_of_week=_scaled(self, demand))
        return demand


def _check(what: str, number: object) -> None:
    if type(number) not in (int, float) or not math.isfinite(number) or number < 0:  # type: ignore[arg-type,operator]
        raise InvalidEdit(f"{what} {number!r} is not possible: use a finite number, 0 or more")


def _changed(name: str, present: Quantity | None, change: Times | To) -> Quantity:
    if isinstance(change, To):
        value = change.value
    elif present is None:
        raise InvalidEdit(f"{name} is unknown, so that times() has nothing to multiply; use to()")
    else:
        value = present.value * change.factor
    low, high = LIMITS.get(name, (0.0, math.inf))  # shares are checked by the demand
    if not low <= value <= high:
        raise InvalidEdit(f"{name}={value:g} is not possible: use a number from {low:g} to {high:g}")
    return Quantity(value, Provenance.ASSUMED, change.source, change.confirmed)


def _scaled(present_demand: Demand, after: Demand) -> tuple[float | None, ...]:
    if (
        present_demand.requests_per_s is None
        or after.requests_per_s is None
        or present_demand.requests_per_s.value == 0
    ):
        return (None,) * HOURS_OF_WEEK
    factor = after.requests_per_s.value / present_demand.requests_per_s.value
    return tuple(None if value is None else value * factor for value in present_demand.requests_by_hour_of_week)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hours of the week (0 is Monday 00:00 UTC) in which a service has another number of replicas.

    Off releases the hosts of its replicas; asleep keeps them and frees the device memory.
    """

    off: frozenset[int] = frozenset()
    asleep: frozenset[int] = frozenset()
    replicas: tuple[tuple[int, int], ...] = ()
    """(hour of week, replicas) where a fixed number is meant."""

    def __post_init__(self) -> None:
        for hour in (*self.off, *self.asleep, *(hour for hour, _ in self.replicas)):
            if type(hour) is not int or not 0 <= hour < HOURS_OF_WEEK:
                raise InvalidEdit(f"hour {hour!r} is not an hour of the week: use 0 (Monday 00:00 UTC) to 167")
        if self.off & self.asleep:
            raise InvalidEdit("an hour is either off or asleep")
        if any(type(count) is not int or count < 0 for _, count in self.replicas):
            raise InvalidEdit("a schedule has a whole number of replicas, 0 or more, in each hour")
        fixed = [hour for hour, _ in self.replicas]
        if len(set(fixed)) != len(fixed) or set(fixed) & (self.off | self.asleep):
            raise InvalidEdit("a schedule states each hour once")


def off(hours: Iterable[int]) -> Schedule:
    """Return the schedule of a service that is shut down in these hours of the week."""
    return Schedule(off=frozenset(hours))


def asleep(hours: Iterable[int]) -> Schedule:
    """Return the schedule of a service that sleeps in these hours of the week."""
    return Schedule(asleep=frozenset(hours))


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
    """Replicas beyond the need of the demand (N+1 is 1)."""
    isolation: str | None = None
    """`tenant`: no device, cache or engine is shared with other services."""
    forbidden: tuple[str, ...] = ()
    """Changes that no proposal may make, in the words of the setting `forbid`."""
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

    def but(self, **changes: Any) -> Service:
        """Return this service with other knobs on each of its deployments.

        Raises UnknownKnob and InvalidEdit as `Deployment.but` does.
        """
        values = checked(changes)
        deployments = (
            replace(deployment, **values, edited=(*deployment.edited, *changes)) for deployment in self.deployments
        )
        return replace(self, deployments=tuple(deployments))

    def on(self, placement: Placement, *, all_but: int = 0) -> Service:
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

    def resized(self) -> Service:
        """Return this service with the fewest replicas that hold its demand within the SLO."""
        return replace(self, replicas=FEWEST)

    def scaled_to(self, replicas: int) -> Service:
        """Return this service with a number of replicas.

        Raises InvalidEdit below 1 (use `scheduled` for none) or if it is no whole number.
        """
        if type(replicas) is not int or replicas < 1:
            raise InvalidEdit(f"scaled_to({replicas!r}) is not possible: use a whole number above 0")
        return replace(self, replicas=replicas)

    def serving(self, **changes: Times | To) -> Service:
        """Return this service with another demand: `service.serving(output_len=times(0.7))`; see `Demand.serving`."""
        return replace(self, demand=self.demand.serving(**changes))

    def scheduled(self, schedule: Schedule) -> Service:
        """Return this service with replicas by hour of week.

        Raises InvalidEdit for any other value than a Schedule.
        """
        if not isinstance(schedule, Schedule):
            raise InvalidEdit(f"{schedule!r} is not a Schedule")
        return replace(self, schedule=schedule)

    def expecting(self, low: float, likely: float, high: float, source: str) -> Service:
        """Return this service with a rule's own expectation of each deployment's speed; see `Expectation`."""
        return replace(
            self, deployments=tuple(deployment.expecting(low, likely, high, source) for deployment in self.deployments)
        )
