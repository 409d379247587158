"""A plan as values: limits, steps in order, left-out proposals and totals."""

from dataclasses import dataclass

from pertoken.forecast.tiers import Tier
from pertoken.savings.saving import Money as Money
from pertoken.savings.sensitivity import Sensitivity

EFFORTS = {"low": "minutes", "medium": "hours", "high": "days"}
"""Effort of a variant -> its approximate time."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits and wishes for a plan."""

    exclude: tuple[str, ...] = ()
    """Ids of rules without steps in the plan."""
    max_effort: str = "days"
    """Maximum effort of one step: `minutes`, `hours` or `days`."""
    max_power_w: float | None = None
    """Maximum sum of the power limits of all devices in use, watts; None: unlimited."""
    without: frozenset[int] = frozenset()
    """Ids of recommendations that a person left out."""
    order: tuple[int, ...] = ()
    """Ids of recommendations in the wanted order; a step that cannot be applied yet waits for those it requires."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """The latency objective that is nearest to its limit after a step, milliseconds at the p95 demand."""

    figure: str
    """`TTFT p95`."""
    likely_ms: float
    high_ms: float
    limit_ms: float

    @property
    def share(self) -> float:
        """Headroom of the likely figure as a share of the limit; below 0 if the objective is missed."""
        return 1 - self.likely_ms / self.limit_ms


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One change, priced on the state after the previous step."""

    rule_id: str
    recommendation_id: int
    variant_key: str
    title: str
    where: str
    """Name of the service, deployment or host for people."""
    risk: str
    """Possible harm: `none`, `latency`, `availability` or `quality`."""
    effort: str
    """`minutes`, `hours` or `days`."""
    spend_before: int
    """Likely bill before the step, nano-USD per month."""
    spend_after: int
    bankable: Money
    """Increase of bankable dollars over the earlier steps; an end may be below 0."""
    capacity: Money
    slo: str
    """Latency verdict of all changes up to this step: `pass`, `near_miss` or `unknown`."""
    accepted: bool = False
    """Whether a person accepted it: the other steps start from it."""
    headroom: Headroom | None = None
    """None if no objective is set, or no latency was forecast."""
    replicas: tuple[int, int] | None = None
    """Replicas before and after the step, if their number changes."""
    released: tuple[str, ...] = ()
    """Names of the hosts that the step releases."""
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Proposals that conflict with it, each with the reason."""
    tier: Tier | None = None
    """Basis of its forecast; None without one."""
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A proposal that is not part of the plan, and why."""

    rule_id: str
    recommendation_id: int
    title: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that save most together."""

    spend: int
    """Bill of all hosts with a price, nano-USD per month."""
    bankable: Money
    """Net decrease of the bill after all steps; never above the spend, and below 0 at an end where the bill rises."""
    capacity: Money
    """Additional work for the same bill; together with `bankable` never above the spend."""
    steps: tuple[PlanStep, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unpriced_hosts: tuple[str, ...] = ()
    """Hosts without a price: they are not part of the spend."""
    sensitivity: tuple[Sensitivity, ...] = ()
    """Sensitivity to each assumption, largest first; empty unless requested."""
    exact: bool = True
    """Whether every combination was tried; else a group has too many, and the plan is the best found."""

    mtok_per_month: float | None = None
    """Prompt (with cached) and generated Mtok of all services at the present load, which a plan does not change.

    None if a service's are not known or it does not generate.
    """

    @property
    def spend_after(self) -> int:
        """Likely bill after all steps, nano-USD per month."""
        return self.spend - self.bankable[1]

    def per_mtok(self, spend: int) -> float | None:
        """Return nano-USD per Mtok of all services for a bill; None if the price or the tokens are not known."""
        return spend / self.mtok_per_month if self.spend and self.mtok_per_month else None
