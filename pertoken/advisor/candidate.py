"""What a rule yielded, as a fleet that can be priced: validated against the present, and nothing else of it kept."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from pertoken.advisor.values import rebuilt
from pertoken.rule import EFFORTS, RISKS, Proposal
from pertoken.state.demand import EDITABLE, Demand, Quantity, to
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff, diff
from pertoken.state.errors import InvalidEdit
from pertoken.state.fleet import Fleet, Partition
from pertoken.state.knobs import knobs
from pertoken.state.model import Model
from pertoken.state.service import Service

MAX_COUNT = 10**15
"""Parameters of a model that can be meant."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal that is possible."""

    proposal: Proposal
    after: Fleet
    diff: Diff
    """Not empty."""


def candidate(before: Fleet, yielded: object, asked: Deployment | Service | None) -> Candidate | None:
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
    after = replace(after, services=tuple(_service(before, each) for each in after.services))
    difference = diff(before, after)
    if not difference:
        return None
    _refuse_other_changes(before, after)
    _refuse_impossible(after, difference)
    return Candidate(proposal, after, difference)


def _proposal(yielded: object) -> Proposal:
    proposal = yielded if type(yielded) is Proposal else Proposal(yielded)  # type: ignore[arg-type]  # checked below
    state: Any = proposal.state
    if type(state) not in (Deployment, Service, Fleet):
        raise TypeError(
            f"it yielded a {type(state).__name__}; a rule yields a Deployment, a Service, a Fleet or skip(code, reason)"
        )
    words = rebuilt(proposal.risk, str | None), rebuilt(proposal.effort, str | None)
    if words[0] not in (None, *RISKS) or words[1] not in (None, *EFFORTS):
        raise InvalidEdit(f"risk is one of {', '.join(RISKS)}, effort one of {', '.join(EFFORTS)}")
    related = (rebuilt(each, tuple[str, ...]) for each in (proposal.requires, proposal.excludes))
    return Proposal(rebuilt(state, type(state)), *words, *related)


def _service(before: Fleet, after: Service) -> Service:
    """Return a service with its demand changed as `serving` does it: what a rule changes is assumed."""
    now = next((each for each in before.services if each.name == after.name), None)
    if now is None or now.demand == after.demand:
        return after
    changes = {
        name: to(quantity.value, quantity.source)
        for name in EDITABLE
        if isinstance(quantity := getattr(after.demand, name), Quantity) and quantity != getattr(now.demand, name)
    }
    demand: Demand = now.demand.serving(**changes)
    if demand.tenants != after.demand.tenants:
        raise InvalidEdit(f"the tenants of {now.name} are not for a rule to change")
    return replace(after, demand=demand)


_SERVICE_EDITS = ("deployments", "demand", "schedule", "replicas", "expected")
_DEPLOYMENT_EDITS = ("placement", "device_ids", "serves", "restart", "expected")


def _refuse_other_changes(before: Fleet, after: Fleet) -> None:
    """Raise InvalidEdit for a change outside the edits of `state`: settings of people, prices, names, identities."""
    for service in before.services:
        changed = after.service(service.name)
        if replace(changed, **_fields(service, _SERVICE_EDITS)) != service:
            raise InvalidEdit(
                f"objectives, limits and labels of {service.name} are settings: a rule cannot change them"
            )
    kept = {each.deployment_id: each for each in after.deployments}
    for deployment in before.deployments:
        other = kept.get(deployment.deployment_id)
        edits = (*knobs(), *_DEPLOYMENT_EDITS)
        if other is not None and replace(other, **_fields(deployment, edits)) != deployment:
            raise InvalidEdit(f"name and identity of {deployment.name} cannot change")
    hosts = {each.host_id: each for each in before.hosts}
    if any(each != hosts[each.host_id] for each in after.hosts):
        raise InvalidEdit("how a host is placed and paid for is not for a rule to change: move deployments, or commit")
    devices = {each.device_id: each for each in before.devices}
    for device in after.devices:
        now = devices.get(device.device_id)
        if now is None or replace(device, partitions=now.partitions) != now:
            raise InvalidEdit(f"{device.name} is another device than the fleet has: only its partitions can change")
        if device.partitions != now.partitions:
            before.partition(now, *(part.profile for part in device.partitions))  # raises for what is not possible
            if any(part.partition_id != 0 for part in device.partitions):
                raise InvalidEdit(f"a new partition of {device.name} has no id yet: use fleet.partition(...)")
    if after.commitments[: len(before.commitments)] != before.commitments:
        raise InvalidEdit("a commitment cannot be taken back")


def _fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _refuse_impossible(after: Fleet, difference: Diff) -> None:
    for change in difference.changes:
        if change.kind == "deployment" and change.field in knobs():
            _refuse_impossible_knob(change.field, change.after)
    for added in difference.added:
        for name in knobs():
            if getattr(added, name) is not None:
                _refuse_impossible_knob(name, getattr(added, name))
    there = {each.device_id for each in after.devices}
    there |= {part.partition_id for each in after.devices for part in each.partitions if _made(part)}
    for deployment in after.deployments:
        if not set(deployment.device_ids) <= there:
            raise InvalidEdit(f"{deployment.name} would run on devices that the proposal does not have")
        if len(set(deployment.device_ids)) != len(deployment.device_ids):
            raise InvalidEdit(f"{deployment.name} names a device twice")
    for service in after.services:
        _refuse_impossible_service(service)


def _refuse_impossible_knob(name: str, value: Any) -> None:
    knobs()[name].check(value)
    if isinstance(value, Model):
        counts = [getattr(value, field.name) for field in fields(Model) if field.name != "name"]
        if any(count is not None and not 0 < count <= MAX_COUNT for count in counts):
            raise InvalidEdit(f"the shape of {value.name} is not possible: its counts are whole numbers above 0")


def _made(part: Partition) -> bool:
    return part.partition_id != 0


def _refuse_impossible_service(service: Service) -> None:
    if not service.deployments:
        raise InvalidEdit(f"{service.name} would have no deployment: use scheduled(off(...)), or merge it into another")
    if isinstance(service.replicas, str):
        if service.replicas != "fewest":
            raise InvalidEdit(f"{service.replicas!r} is no number of replicas: use resized() or scaled_to(n)")
    elif service.replicas is not None and service.replicas < 1:
        raise InvalidEdit(f"{service.replicas} replicas are not possible: use scaled_to(n), 1 or more")
    shares = [dict(each.serves).get(service.name, 0.0) for each in service.deployments]
    if any(share is not None and not 0 <= share <= 1 for share in shares):
        raise InvalidEdit(f"a share of the demand of {service.name} is not from 0 to 1")
    if sum(share or 0.0 for share in shares) > 1 + 1e-9:
        raise InvalidEdit(f"the shares of the demand of {service.name} add up to more than 1")
    if any(service.name not in dict(each.serves) for each in service.deployments):
        raise InvalidEdit(f"a deployment of {service.name} does not serve it")
