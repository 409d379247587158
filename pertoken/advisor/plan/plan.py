"""A plan as people read it: steps in their order, what each saves on the state the previous one left, and totals."""

from dataclasses import dataclass

from pertoken.savings.assumptions.sensitivity import Sensitivity

Money = tuple[int, int, int]
"""Nano-USD per month of 730 h: low, likely, high."""
NOTHING: Money = (0, 0, 0)
EFFORTS = {"low": "minutes", "medium": "hours", "high": "days"}
"""Effort of a variant -> the time that it stands for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a person asks of a plan."""

    exclude: tuple[str, ...] = ()
    """Ids of rules of which no step is wanted."""
    max_effort: str = "days"
    """The most work of one step: `minutes`, `hours` or `days`."""
    max_power_w: float | None = None
    """The most that the devices in use may draw together, at the limits of each; None: any."""
    without: frozenset[int] = frozenset()
    """Ids of recommendations that a person left out."""
    order: tuple[int, ...] = ()
    """Ids of recommendations in the order a person wants; a step that cannot be made yet waits for those it needs."""


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
        """Part of the limit that the likely figure leaves; below 0 where it is missed."""
        return 1 - self.likely_ms / self.limit_ms


@dataclass(frozen=True, slots=True)
class Step:
    """One change, priced on the state that the previous step left."""

    rule_id: str
    recommendation_id: int
    variant_key: str
    title: str
    where: str
    """Service, deployment or host it is about, as people call it."""
    risk: str
    """What it can harm: `none`, `latency`, `availability` or `quality`."""
    effort: str
    """`minutes`, `hours` or `days`."""
    spend_before: int
    """Likely bill before the step, nano-USD per month."""
    spend_after: int
    bankable: Money
    """What the step adds to the bankable dollars of the steps before it; an end may be below 0."""
    capacity: Money
    slo: str
    """Verdict on the latency of what changed up to here: `pass`, `near_miss` or `unknown`."""
    headroom: Headroom | None = None
    """None where no objective is set, or no latency was forecast."""
    replicas: tuple[int, int] | None = None
    """Replicas before and after the step, where their number changes."""
    released: tuple[str, ...] = ()
    """Hosts that the step gives back."""
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Proposals that cannot be made beside it, each with the reason."""
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
    """Steps that save most together."""

    spend: int
    """Bill of all hosts with a price, nano-USD per month."""
    bankable: Money
    """What leaves the bill after all steps; never above the spend."""
    capacity: Money
    """What the same bill could serve more. With `bankable` never above the spend."""
    steps: tuple[Step, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unpriced_hosts: tuple[str, ...] = ()
    """Hosts without a price: they are not part of the spend."""
    sensitivity: tuple[Sensitivity, ...] = ()
    """What each assumption is worth, the one that moves the totals most first; empty unless it was asked for."""
    exact: bool = True
    """Whether every combination was looked at; else a group has too many, and the plan is the best that was found."""

    mtok_per_month: float | None = None
    """Prompt (cached included) and generated Mtok of all services at the present load, which a plan does not change;
    None where those of one service are not known or are no generation."""

    @property
    def spend_after(self) -> int:
        """Likely bill after all steps, nano-USD per month."""
        return self.spend - self.bankable[1]

    def per_mtok(self, spend: int) -> float | None:
        """Return nano-USD per Mtok of all services at a bill; None without a price or without their tokens."""
        return spend / self.mtok_per_month if self.spend and self.mtok_per_month else None
