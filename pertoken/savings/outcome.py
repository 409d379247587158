"""One service after a change: what still runs on the fleet's devices, what is new, and why not where it cannot be."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pertoken.forecast.serving import Range
from pertoken.provenance import Provenance
from pertoken.savings.context import Money
from pertoken.savings.placing import NotPlaced, Placed
from pertoken.savings.slo import NO_OBJECTIVE, Latencies, Verdict
from pertoken.savings.speed import Speed
from pertoken.state.deployment import Deployment

Kept = tuple[tuple[Deployment, ...], tuple[Deployment, ...], tuple[Deployment, ...]]
"""Deployments that still use devices of the fleet: at the low, likely and high end of the saving."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A service after a change, before whole hosts are counted."""

    kept: Kept = ((), (), ())
    new_nano_usd_per_hour: Range = (0.0, 0.0, 0.0)
    """What devices elsewhere would cost, lowest first."""
    placed: tuple[Placed, ...] = ()
    """The instances behind `new_nano_usd_per_hour` that are offers of the catalog, set prices or bills."""
    capacity: Money | None = None
    """Busy time of the devices it keeps that becomes free, nano-USD per month."""
    timed: Money | None = None
    """Devices that are free in the hours of a schedule, nano-USD per month: added to whatever else is free."""
    ratio: Range | None = None
    slo: Verdict = (NO_OBJECTIVE, None)
    """Verdict beside those of `judged`."""
    judged: tuple[Speed, ...] = ()
    """Forecasts whose latency is judged once the change is shown."""
    latency: Latencies | None = None
    replicas: tuple[int, int] | None = None
    provenance: Provenance | None = None
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    break_even: str | None = None
    unpriced: str | None = None
    unconfirmed: str | None = None
    """What a person has to confirm before its money enters a total."""
    doubtful: str | None = None
    """Why its forecast is doubtful: its money enters no total until the change was tried."""
    to_confirm: str | None = None
    """What a person has to confirm of an offer before its money enters a total."""
    infeasible: str | None = None
    refusal_code: str = "infeasible"
    """Code of a refusal for `infeasible`."""
    bankable: Money | None = field(default=None)
    """Dollars that are not of whole months of hosts: energy of owned hardware, hours of a schedule; per month."""


def not_placed(refused: NotPlaced) -> Outcome:
    """Return the outcome of a move that no offer holds."""
    return Outcome(infeasible=refused.reason, refusal_code=refused.code)


def to_confirm(placed: Iterable[Placed]) -> str | None:
    """Return what a person has to confirm of several offers; None where all may be ordered."""
    texts = dict.fromkeys(instances.to_confirm for instances in placed if instances.to_confirm)
    return "; ".join(texts) or None


def same(deployments: tuple[Deployment, ...]) -> Kept:
    """Return the same deployments at all three ends."""
    return deployments, deployments, deployments
