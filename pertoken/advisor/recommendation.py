"""One piece of advice as it is stored, listed and shown."""

from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Where a piece of advice stands."""

    OPEN = "OPEN"
    """Proposed and priced."""
    BLOCKED = "BLOCKED"
    """The rule needs something that was not measured or is not known."""
    REFUSED = "REFUSED"
    """The rule looked and had nothing to propose, with its reason."""
    FAILED = "FAILED"
    """The rule broke; the reason holds its error."""
    EXPIRED = "EXPIRED"
    """Proposed once; the last run did not propose it again."""


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One series a rule read."""

    series: str
    unit: str
    mean: float | None
    p50: float | None
    p95: float | None
    n: int
    provenance: str | None
    missing: str | None = None
    """Why it could not be read; every number is None then."""


@dataclass(frozen=True, slots=True)
class LatencyLine:
    """One quantile over requests before and after the change, milliseconds as (low, likely, high)."""

    figure: str
    """`TTFT p95`."""
    before: tuple[float, float, float] | None
    """At the p95 demand; None where more arrives than is served."""
    after: tuple[float, float, float] | None
    measured_ms: float | None
    """Before, over the whole window; None where its engine does not tell."""
    slo_ms: float | None
    provenance: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What one rule said of one target. Money is nano-USD per month of 730 h, as (low, likely, high)."""

    recommendation_id: int
    rule_id: str
    state: State
    title: str
    target: str
    """Deployment or device it is about, in words."""
    deployment_id: int | None = None
    reason: str | None = None
    remedy: str | None = None
    changes: dict[str, tuple[str, str]] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    bankable: tuple[int, int, int] | None = None
    """The bill falls by this while demand stays as it is."""
    capacity: tuple[int, int, int] | None = None
    """The same bill could serve this much more, valued at today's cost. Never added to bankable."""
    throughput_ratio: tuple[float, float, float] | None = None
    slo: str = "unknown"
    """`pass`, `near_miss`, `fail` or `unknown`."""
    latency: tuple[LatencyLine, ...] = ()
    latency_unknown: str | None = None
    """Why there are no lines of it."""
    replicas: tuple[int | None, int | None] | None = None
    """Fewest copies, before and after, that hold all arrivals of the model within the SLO; None if no number does."""
    provenance: str | None = None
    unpriced: str | None = None
    """Why there is no money in it."""
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    evidence: tuple[EvidenceLine, ...] = ()
    created_ts: int = 0
    updated_ts: int = 0
    version: int = 0
