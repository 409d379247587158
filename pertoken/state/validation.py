"""Validation of a proposed fleet: only what edits of the present one produce, with possible values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import TypeVar

from pertoken.state.deployment import Deployment, InvalidEdit, Model, is_name, knobs
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.service import EDITABLE, FEWEST, Demand, Quantity, Service, to

T = TypeVar("T")

MAX_COUNT = 10**15
"""Maximum parameters of a model."""
MAX_ADDED = 1000
"""Maximum new deployments of one proposal."""
ROUNDING = 1e-9
"""Tolerance of sums of shares."""

_SERVICE_EDITS = ("deployments", "demand", "schedule", "replicas")
_DEPLOYMENT_EDITS = ("placement", "device_ids", "serves", "share_source", "restart", "expected")


def as_edited(present: Fleet, state: Deployment | Service | Fleet, *, confirmed: bool) -> Fleet:
    """Return the present fleet with a state in it, its demand and placements changed as by the edits.

    Demand figures count as confirmed only if `confirmed`. Raises InvalidEdit if the fleet has no such service or
    deployment.
    """
    proposed = present.edit(state)
    changed = services_unlike(proposed, present)
    unlike = {service.name: _service(present.service_of.get(service.name), service, confirmed) for service in changed}
    if all(unlike[service.name] is service for service in changed):
        return proposed
    return replace(proposed, services=tuple(unlike.get(service.name, service) for service in proposed.services))


def _service(present_service: Service | None, proposed_service: Service, confirmed: bool) -> Service:
    """Return a service with demand and placements changed as by the edits, whichever way a rule changed them."""
    if present_service is None:
        return proposed_service
    present = {deployment.deployment_id: deployment for deployment in present_service.deployments}
    deployments = tuple(
        [_deployment(present.get(deployment.deployment_id), deployment) for deployment in proposed_service.deployments]
    )
    if any(proposed is not merged for proposed, merged in zip(proposed_service.deployments, deployments, strict=True)):
        proposed_service = replace(proposed_service, deployments=deployments)
    if present_service.demand == proposed_service.demand:
        return proposed_service
    # A demand that a rule changed is an assumption.
    changes = {
        name: to(quantity.value, quantity.source, confirmed=confirmed and quantity.confirmed)
        for name in EDITABLE
        if isinstance(quantity := getattr(proposed_service.demand, name), Quantity)
        and quantity != getattr(present_service.demand, name)
    }
    demand: Demand = present_service.demand.serving(**changes)
    if demand.tenants != proposed_service.demand.tenants:
        raise InvalidEdit(f"a rule must not change the tenants of {present_service.name}")
    return replace(proposed_service, demand=demand)


def _deployment(present: Deployment | None, proposed: Deployment) -> Deployment:
    """Return a deployment without its devices if it moves to another placement."""
    if present is None or not proposed.device_ids or proposed.device_ids != present.device_ids:
        return proposed
    stays = proposed.placement is present.placement or proposed.placement == present.placement
    return proposed if stays else replace(proposed, device_ids=())


def validate(present: Fleet, proposed: Fleet, difference: Diff, listed_models: Mapping[str, Model | None]) -> None:
    """Raise InvalidEdit for a fleet that no edits of the present one produce, or with impossible values.

    `listed_models`: the shapes that the catalog has of `difference.models`, by name.
    """
    _refuse_other_changes(present, proposed)
    _refuse_impossible(present, proposed, difference, listed_models)


def _refuse_other_changes(present: Fleet, proposed: Fleet) -> None:
    """Raise InvalidEdit for a change that no edit makes: settings, prices, names, ids."""
    for proposed_service in services_unlike(proposed, present):
        service = present.service(proposed_service.name)
        if replace(proposed_service, **{name: getattr(service, name) for name in _SERVICE_EDITS}) != service:
            raise InvalidEdit(
                f"objectives, limits and labels of {service.name} are settings: a rule cannot change them"
            )
    settled = _settled()
    for deployment in deployments_unlike(proposed, present):
        present_deployment = present.deployment_of.get(deployment.deployment_id)
        if present_deployment is not None and settled(deployment) != settled(present_deployment):
            raise InvalidEdit(f"name and identity of {present_deployment.name} cannot change")
    if any(host != present.host(host.host_id) for host in _differing(present.hosts, proposed.hosts)):
        raise InvalidEdit("a rule cannot change the placement or purchase of a host: move deployments, or commit")
    differing_devices = _differing(present.devices, proposed.devices)
    devices = {device.device_id: device for device in present.devices} if differing_devices else {}
    for device in differing_devices:
        present_device = devices.get(device.device_id)
        if present_device is None or replace(device, partitions=present_device.partitions) != present_device:
            raise InvalidEdit(f"{device.name} is another device than the fleet has: only its partitions can change")
        if device.partitions != present_device.partitions:
            partitioned = replace(
                proposed,
                devices=tuple(
                    present_device if device.device_id == present_device.device_id else device
                    for device in proposed.devices
                ),
            )
            partitioned.partition(
                present_device, *(part.profile for part in device.partitions)
            )  # raises for impossible partitions
            if any(part.partition_id >= 0 for part in device.partitions):
                raise InvalidEdit(f"a new partition of {device.name} has an id below 0: use fleet.partition(...)")
    if proposed.commitments[: len(present.commitments)] != present.commitments:
        raise InvalidEdit("a commitment cannot be removed")


def _differing(present: Iterable[T], proposed: Iterable[T]) -> tuple[T, ...]:
    """Return values that may differ: unchanged values of a proposal are the same objects as the present ones."""
    if proposed is present:
        return ()
    present_ids = set(map(id, present))
    return tuple(record for record in proposed if id(record) not in present_ids)


@cache
def _settled() -> Callable[[Deployment], tuple[object, ...]]:
    """Return a getter of the fields of a deployment that no edit changes."""
    edits = {*knobs(), *_DEPLOYMENT_EDITS}
    return attrgetter(*(field.name for field in fields(Deployment) if field.compare and field.name not in edits))


def _refuse_impossible(
    present: Fleet, proposed: Fleet, difference: Diff, listed_models: Mapping[str, Model | None]
) -> None:
    """Raise InvalidEdit for impossible knobs, devices, shares or replicas."""
    if len(difference.added) > MAX_ADDED:
        raise InvalidEdit(f"it adds {len(difference.added):,} deployments: propose at most {MAX_ADDED:,}")
    for change in difference.changes:
        if change.kind == "deployment" and change.field in knobs():
            _refuse_impossible_knob(change.field, change.after, present, listed_models)
    for added in difference.added:
        for name in knobs():
            if getattr(added, name) is not None:
                _refuse_impossible_knob(name, getattr(added, name), present, listed_models)
    same_devices = proposed.devices is present.devices
    fleet = present if same_devices else proposed
    for deployment in deployments_unlike(proposed, present) if same_devices else proposed.deployments:
        ids = deployment.device_ids
        if not all(device_id in fleet.device_ids or device_id in fleet.partition_of for device_id in ids):
            raise InvalidEdit(f"{deployment.name} would run on devices that the proposal does not have")
    services = services_unlike(proposed, present)
    names = _listed_by(present, services)
    for service in services:
        for deployment in service.deployments:
            present_deployment = present.deployment_of.get(deployment.deployment_id)
            if present_deployment is not deployment:
                _refuse_impossible_devices(present_deployment, deployment)
            # It must serve exactly the services that list it, each once.
            if sorted([name for name, _ in deployment.serves]) != sorted(names[deployment.deployment_id]):
                raise InvalidEdit(
                    f"{deployment.name} serves other services than those that list it: use serving_share(...)"
                )
        _refuse_impossible_service(service)


def _listed_by(present: Fleet, changed: Iterable[Service]) -> dict[int, list[str]]:
    """Return, by deployment id, the names of the services that list it after the change."""
    services = {service.name: service for service in changed}
    ids = {deployment.deployment_id for service in services.values() for deployment in service.deployments}
    names = {
        deployment_id: [name for name in present.listed_by.get(deployment_id, ()) if name not in services]
        for deployment_id in ids
    }
    for service in services.values():
        for deployment in service.deployments:
            names[deployment.deployment_id].append(service.name)
    return names


def _refuse_impossible_knob(
    name: str, value: object, present: Fleet, listed_models: Mapping[str, Model | None]
) -> None:
    knobs()[name].check(value)
    if not isinstance(value, Model):
        return
    if not is_name(value.name):
        raise InvalidEdit("the name of a model is printable text of at most 255 characters")
    counts = [getattr(value, field.name) for field in fields(Model) if field.name != "name"]
    if any(count is not None and not 0 < count <= MAX_COUNT for count in counts):
        raise InvalidEdit(f"the shape of {value.name} is not possible: its counts are whole numbers above 0")
    for total_field, active_field in (("params_total", "params_active"), ("n_experts", "n_experts_active")):
        total, active = getattr(value, total_field), getattr(value, active_field)
        if total is not None and active is not None and active > total:
            raise InvalidEdit(f"the shape of {value.name} is not possible: {active_field} is more than {total_field}")
    fleet_models = present.models.get(value.name, ())
    shapes = (*fleet_models, listed_models.get(value.name))
    if value not in fleet_models and any(shape is not None and _contradicts(value, shape) for shape in shapes):
        raise InvalidEdit(f"{value.name} has another shape than in the fleet or the catalog")


def _contradicts(stated: Model, listed: Model) -> bool:
    pairs = (
        (getattr(stated, field.name), getattr(listed, field.name)) for field in fields(Model) if field.name != "name"
    )
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _refuse_impossible_devices(present: Deployment | None, proposed: Deployment) -> None:
    if len(proposed.device_ids) > 1 and len(set(proposed.device_ids)) != len(proposed.device_ids):
        raise InvalidEdit(f"{proposed.name} names a device twice")
    if present is not None and (
        proposed.device_ids == present.device_ids
        or (not proposed.device_ids and proposed.placement != present.placement)
    ):
        return
    if not proposed.device_ids:
        if present is not None:
            raise InvalidEdit(f"{proposed.name} would run on no device: use on(Placement(...)), or release its host")
        return
    laid_out = (proposed.tp, proposed.pp, proposed.dp) != (None, None, None)
    needed = proposed.n_devices if laid_out or present is None else len(present.device_ids)
    if needed != len(proposed.device_ids):
        raise InvalidEdit(f"{proposed.name} needs {needed} devices, and {len(proposed.device_ids)} are named")


def _refuse_impossible_service(service: Service) -> None:
    if not service.deployments:
        raise InvalidEdit(f"{service.name} would have no deployment: use scheduled(off(...)), or merge it into another")
    if isinstance(service.replicas, str):
        if service.replicas != FEWEST:
            raise InvalidEdit(f"{service.replicas!r} is no number of replicas: use resized() or scaled_to(n)")
    elif service.replicas is not None and service.replicas < 1:
        raise InvalidEdit(f"{service.replicas} replicas are not possible: use scaled_to(n), 1 or more")
    shares = [dict(deployment.serves)[service.name] for deployment in service.deployments]
    if any(share is not None and not 0 <= share <= 1 for share in shares):
        raise InvalidEdit(f"a share of the demand of {service.name} is not from 0 to 1")
    total = sum(share or 0.0 for share in shares)
    if total > 1 + ROUNDING:
        raise InvalidEdit(f"the shares of the demand of {service.name} add up to more than 1")
    if None not in shares and total < 1 - ROUNDING:
        raise InvalidEdit(f"the shares of the demand of {service.name} add up to {total:g}: the rest is not served")
