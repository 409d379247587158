"""What a rule yielded, as a fleet that can be priced: validated against the present, and nothing else of it kept."""

from dataclasses import dataclass, replace
from typing import Any

from pertoken.advisor.possible import refuse_impossible, refuse_other_changes
from pertoken.advisor.values import rebuilt, type_name
from pertoken.catalog.market import Market
from pertoken.rule import Proposal, propose
from pertoken.state.demand import EDITABLE, Demand, Quantity, to
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff, diff
from pertoken.state.errors import InvalidEdit
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal that is possible."""

    proposal: Proposal
    after: Fleet
    diff: Diff
    """Not empty."""


def candidate(before: Fleet, yielded: object, asked: Deployment | Service | None, market: Market) -> Candidate | None:
    """Return what was yielded as a candidate, None if it equals the present.

    `asked` is the deployment or service that the rule was run for; None for a rule over the fleet. Raises InvalidEdit
    for what no edit of the fleet leads to, TypeError for what is no proposal.
    """
    proposal = _proposal(yielded)
    state = proposal.state
    if isinstance(state, Deployment) and asked is not None:
        ids = {each.deployment_id for each in (asked.deployments if isinstance(asked, Service) else (asked,))}
        if state.deployment_id not in ids:
            raise InvalidEdit(f"{state.name} is another deployment than it was asked about: use now.but(...)")
    if isinstance(state, Service) and isinstance(asked, Service) and state.name != asked.name:
        raise InvalidEdit(f"{state.name} is another service than it was asked about ({asked.name})")
    after = before.edit(state)
    present = {each.name: each for each in before.services}
    services = (each if each is present.get(each.name) else _service(before, each) for each in after.services)
    after = replace(after, services=tuple(services))
    difference = diff(before, after)
    if not difference:
        return None
    refuse_other_changes(before, after)
    refuse_impossible(before, after, difference, market)
    return Candidate(proposal, after, difference)


def _proposal(yielded: object) -> Proposal:
    proposal = yielded if type(yielded) is Proposal else Proposal(yielded)  # type: ignore[arg-type]  # checked below
    state: Any = proposal.state
    kind = next((each for each in (Deployment, Service, Fleet) if type(state) is each), None)
    if kind is None:
        raise TypeError(
            f"it yielded a {type_name(state)}; a rule yields a Deployment, a Service, a Fleet or skip(code, reason)"
        )
    return propose(
        rebuilt(state, kind),
        risk=rebuilt(proposal.risk, str | None),
        effort=rebuilt(proposal.effort, str | None),
        requires=rebuilt(proposal.requires, tuple[str, ...]),
        excludes=rebuilt(proposal.excludes, tuple[str, ...]),
    )


def _service(before: Fleet, after: Service) -> Service:
    """Return a service with demand and placements changed as the edits do it, however a rule changed them."""
    present = {each.deployment_id: each for each in before.deployments}
    after = replace(
        after, deployments=tuple(_deployment(present.get(each.deployment_id), each) for each in after.deployments)
    )
    now = next((each for each in before.services if each.name == after.name), None)
    if now is None or now.demand == after.demand:
        return after
    # What a rule changes of a demand is assumed.
    changes = {
        name: to(quantity.value, quantity.source)
        for name in EDITABLE
        if isinstance(quantity := getattr(after.demand, name), Quantity) and quantity != getattr(now.demand, name)
    }
    demand: Demand = now.demand.serving(**changes)
    if demand.tenants != after.demand.tenants:
        raise InvalidEdit(f"the tenants of {now.name} are not for a rule to change")
    return replace(after, demand=demand)


def _deployment(now: Deployment | None, to: Deployment) -> Deployment:
    """Return a deployment that leaves its devices when it moves to another placement."""
    moved = now is not None and to.placement != now.placement and to.device_ids == now.device_ids
    return replace(to, device_ids=()) if moved else to
