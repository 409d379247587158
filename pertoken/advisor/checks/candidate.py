"""Proposal of a rule as a fleet that can be priced, validated against the present fleet."""

from dataclasses import dataclass, replace

from pertoken.advisor.checks.possible import refuse_impossible, refuse_other_changes
from pertoken.advisor.worker.wire import proposal_of
from pertoken.catalog.market import Market
from pertoken.rule import Proposal
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff, diff
from pertoken.state.fleet import Fleet, services_unlike
from pertoken.state.knobs import InvalidEdit
from pertoken.state.service import EDITABLE, Demand, Quantity, Service, to


@dataclass(frozen=True, slots=True)
class Candidate:
    """A valid proposal."""

    proposal: Proposal
    after: Fleet
    diff: Diff
    """Not empty."""


def candidate(
    before: Fleet, sent: object, asked: Deployment | Service | None, market: Market, *, configured: bool = False
) -> Candidate | None:
    """Return the candidate in a worker's message; None if it equals the present fleet.

    `asked` is the deployment or service that the rule was run for; None for a rule over the fleet. Demand figures
    count as confirmed only from a rule that a person `configured`. Raises InvalidEdit for a fleet that no edit
    produces, ValueError for an invalid risk, effort or rule id.
    """
    proposal = proposal_of(sent, before)
    state = proposal.state
    if isinstance(state, Deployment) and asked is not None:
        ids = {
            deployment.deployment_id for deployment in (asked.deployments if isinstance(asked, Service) else (asked,))
        }
        if state.deployment_id not in ids:
            raise InvalidEdit(f"{state.name} is another deployment than it was asked about: use now.but(...)")
    if isinstance(state, Service) and isinstance(asked, Service) and state.name != asked.name:
        raise InvalidEdit(f"{state.name} is another service than it was asked about ({asked.name})")
    after = before.edit(state)
    changed = services_unlike(after, before)
    unlike = {service.name: _service(before.service_of.get(service.name), service, configured) for service in changed}
    if any(unlike[service.name] is not service for service in changed):
        after = replace(after, services=tuple(unlike.get(service.name, service) for service in after.services))
    difference = diff(before, after)
    if not difference or _keeps_replicas(difference, before):
        return None
    refuse_other_changes(before, after)
    refuse_impossible(before, after, difference, market)
    return Candidate(proposal, after, difference)


def _keeps_replicas(difference: Diff, before: Fleet) -> bool:
    """Return whether a difference only sets numbers of replicas that run now."""
    return not (difference.added or difference.removed or difference.released) and all(
        change.field == "replicas" and change.after == len(before.service(str(change.target)).deployments)
        for change in difference.changes
    )


def _service(now: Service | None, after: Service, configured: bool) -> Service:
    """Return a service with demand and placements changed as by the edits, whichever way a rule changed them."""
    if now is None:
        return after
    present = {deployment.deployment_id: deployment for deployment in now.deployments}
    deployments = tuple(
        [_deployment(present.get(deployment.deployment_id), deployment) for deployment in after.deployments]
    )
    if any(one is not other for one, other in zip(after.deployments, deployments, strict=True)):
        after = replace(after, deployments=deployments)
    if now.demand == after.demand:
        return after
    # A demand that a rule changed is an assumption.
    changes = {
        name: to(quantity.value, quantity.source, confirmed=configured and quantity.confirmed)
        for name in EDITABLE
        if isinstance(quantity := getattr(after.demand, name), Quantity) and quantity != getattr(now.demand, name)
    }
    demand: Demand = now.demand.serving(**changes)
    if demand.tenants != after.demand.tenants:
        raise InvalidEdit(f"a rule must not change the tenants of {now.name}")
    return replace(after, demand=demand)


def _deployment(now: Deployment | None, to: Deployment) -> Deployment:
    """Return a deployment without its devices if it moves to another placement."""
    if now is None or not to.device_ids or to.device_ids != now.device_ids:
        return to
    stays = to.placement is now.placement or to.placement == now.placement
    return to if stays else replace(to, device_ids=())
