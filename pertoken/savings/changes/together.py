"""Outcome of several changes of one service at once: deployments, demand and schedule.

No second of a device is counted twice. A smaller demand frees a share of the busy time that is left after deployments
became faster. Hours off have no requests, so the time that they free is never busy time. Hours off of fewer replicas
free the hosts of those that still run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from pertoken.provenance import worst
from pertoken.savings.context import Money
from pertoken.savings.outcome import Outcome
from pertoken.savings.slo import worst_of
from pertoken.state.deployment import Deployment
from pertoken.state.service import Schedule

FIXED = "a schedule with numbers of replicas and deployments or replicas change at once: propose one, then the other"
OTHER_DEVICES = (
    "hours off and another change of the devices that it uses or pays for are made at once: apply one, then the other"
)
_FASTEST = 2


Part = Literal["deployments", "demand", "schedule"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a service that may change."""


def conflict(schedule: Schedule, deployments: Outcome, now: Sequence[Deployment]) -> str | None:
    """Return the reason why a schedule and a change of deployments cannot be priced together, None if they can."""
    if schedule.replicas:
        return FIXED
    present = {deployment.deployment_id: deployment.device_ids for deployment in now}
    staying = all(
        present.get(deployment.deployment_id) == deployment.device_ids
        for kept in deployments.kept
        for deployment in kept
    )
    paid = any(deployments.new_nano_usd_per_hour) or deployments.bankable is not None
    return None if staying and all(deployments.kept) and not paid else OTHER_DEVICES


def joined(changes: Mapping[Part, Outcome], schedule: Schedule, now: Sequence[Deployment]) -> Outcome:
    """Return one outcome of changes that are made together. If one is refused, all are.

    `schedule`: the proposed one. `now`: the present deployments.
    """
    deployments, demand, hours = map(changes.get, PARTS)
    parts = [outcome for outcome in (deployments, demand, hours) if outcome is not None]
    first = next(
        (outcome for outcome in parts if outcome.infeasible is not None or outcome.unpriced is not None), parts[0]
    )
    if len(parts) == 1 or first.infeasible is not None or first.unpriced is not None:
        return first
    if deployments is not None and hours is not None and (why := conflict(schedule, deployments, now)) is not None:
        return Outcome(unpriced=why)
    if demand is not None and deployments is not None and deployments.ratio is not None:
        demand = replace(demand, capacity=_remaining(demand.capacity, deployments.ratio))
    capacities = [
        outcome.capacity
        for outcome in (deployments, demand, hours)
        if outcome is not None and outcome.capacity is not None
    ]
    banked = [outcome.bankable for outcome in parts if outcome.bankable is not None]
    return replace(
        first,
        bankable=_sum(banked),
        capacity=_sum(capacities),
        timed=hours.timed if hours is not None else None,
        slo=worst_of(outcome.slo for outcome in parts),
        judged=tuple(speed for outcome in parts if outcome is not hours for speed in outcome.judged),
        provenance=worst([outcome.provenance for outcome in parts if outcome.provenance is not None]),
        assumptions=tuple(dict.fromkeys(line for outcome in parts for line in outcome.assumptions)),
        against=tuple(dict.fromkeys(line for outcome in parts for line in outcome.against)),
        doubtful=next((outcome.doubtful for outcome in parts if outcome.doubtful), None),
        unconfirmed="; ".join(filter(None, (outcome.unconfirmed for outcome in parts))) or None,
    )


def _remaining(money: Money | None, ratio: Sequence[float]) -> Money | None:
    """Return the worth of freed busy time after deployments became faster; the low end has the highest speed."""
    if money is None:
        return None
    low, likely, high = (round(amounts / max(1.0, ratio[_FASTEST - end])) for end, amounts in enumerate(money))
    return low, likely, high


def _sum(monies: Sequence[Money]) -> Money | None:
    if not monies:
        return None
    low, likely, high = (sum(usd[end] for usd in monies) for end in range(3))
    return low, likely, high
