"""Refuse proposals that no edit produces or that cannot be applied, before they are priced."""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from pertoken.catalog.market import Market
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.knobs import InvalidEdit, is_name, knobs
from pertoken.state.model import Model
from pertoken.state.service import FEWEST, Service

T = TypeVar("T")

MAX_COUNT = 10**15
"""Maximum parameters of a model."""
MAX_ADDED = 1000
"""Maximum new deployments of one proposal."""
ROUNDING = 1e-9
"""Tolerance of sums of shares."""

_SERVICE_EDITS = ("deployments", "demand", "schedule", "replicas")
_DEPLOYMENT_EDITS = ("placement", "device_ids", "serves", "share_source", "restart", "expected")


def refuse_other_changes(before: Fleet, after: Fleet) -> None:
    """Raise InvalidEdit for a change that no edit of `state` makes: settings, prices, names, ids."""
    for other in services_unlike(after, before):
        service = before.service(other.name)
        if replace(other, **_fields(service, _SERVICE_EDITS)) != service:
            raise InvalidEdit(
                f"objectives, limits and labels of {service.name} are settings: a rule cannot change them"
            )
    settled = _settled()
    for deployment in deployments_unlike(after, before):
        now = _present(before, deployment)
        if now is not None and settled(deployment) != settled(now):
            raise InvalidEdit(f"name and identity of {now.name} cannot change")
    if any(host != before.host(host.host_id) for host in _differing(before.hosts, after.hosts)):
        raise InvalidEdit("a rule cannot change the placement or purchase of a host: move deployments, or commit")
    differing_devices = _differing(before.devices, after.devices)
    devices = {device.device_id: device for device in before.devices} if differing_devices else {}
    for device in differing_devices:
        present_device = devices.get(device.device_id)
        if present_device is None or replace(device, partitions=present_device.partitions) != present_device:
            raise InvalidEdit(f"{device.name} is another device than the fleet has: only its partitions can change")
        if device.partitions != present_device.partitions:
            whole = replace(
                after,
                devices=tuple(
                    present_device if device.device_id == present_device.device_id else device
                    for device in after.devices
                ),
            )
            whole.partition(
                present_device, *(part.profile for part in device.partitions)
            )  # raises for impossible partitions
            if any(part.partition_id >= 0 for part in device.partitions):
                raise InvalidEdit(f"a new partition of {device.name} has an id below 0: use fleet.partition(...)")
    if after.commitments[: len(before.commitments)] != before.commitments:
        raise InvalidEdit("a commitment cannot be removed")


def _present(before: Fleet, deployment: Deployment) -> Deployment | None:
    known = deployment.deployment_id in before.listed_by
    return before.deployment(deployment.deployment_id) if known else None


def _differing(before: Iterable[T], after: Iterable[T]) -> tuple[T, ...]:
    """Return values that may differ: unchanged values of a proposal are the same objects as the present ones."""
    if after is before:
        return ()
    present = set(map(id, before))
    return tuple(record for record in after if id(record) not in present)


@cache
def _settled() -> Callable[[Deployment], tuple[Any, ...]]:
    """Return a getter of the fields of a deployment that no edit changes."""
    edits = {*knobs(), *_DEPLOYMENT_EDITS}
    return attrgetter(*(field.name for field in fields(Deployment) if field.compare and field.name not in edits))


def _fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def refuse_impossible(before: Fleet, after: Fleet, difference: Diff, market: Market) -> None:
    """Raise InvalidEdit for impossible knobs, devices, shares or replicas."""
    if len(difference.added) > MAX_ADDED:
        raise InvalidEdit(f"it adds {len(difference.added):,} deployments: propose at most {MAX_ADDED:,}")
    checked: set[tuple[str, int]] = set()  # replicas get the same value as a rule
    for change in difference.changes:
        value = change.field, id(change.after)
        if change.kind == "deployment" and change.field in knobs() and value not in checked:
            checked.add(value)
            _refuse_impossible_knob(change.field, change.after, before, market)
    for added in difference.added:
        for name in knobs():
            if getattr(added, name) is not None:
                _refuse_impossible_knob(name, getattr(added, name), before, market)
    same_devices = after.devices is before.devices
    for deployment in deployments_unlike(after, before) if same_devices else after.deployments:
        if not all(_has_device(before if same_devices else after, device_id) for device_id in deployment.device_ids):
            raise InvalidEdit(f"{deployment.name} would run on devices that the proposal does not have")
    services = services_unlike(after, before)
    names = _listed_by(before, services)
    for service in services:
        for deployment in service.deployments:
            now = _present(before, deployment)
            if now is not deployment:
                _refuse_impossible_devices(now, deployment)
            # It must serve exactly the services that list it, each once.
            if sorted([name for name, _ in deployment.serves]) != sorted(names[deployment.deployment_id]):
                raise InvalidEdit(
                    f"{deployment.name} serves other services than those that list it: use serving_share(...)"
                )
        _refuse_impossible_service(service)


def _has_device(fleet: Fleet, device_id: int) -> bool:
    """Return whether the fleet has this device or partition."""
    return device_id in fleet.device_ids or device_id in fleet.partition_of


def _listed_by(before: Fleet, changed: Iterable[Service]) -> dict[int, list[str]]:
    """Return, by deployment id, the names of the services that list it after the change."""
    services = {service.name: service for service in changed}
    ids = {deployment.deployment_id for service in services.values() for deployment in service.deployments}
    names = {
        deployment_id: [name for name in before.listed_by.get(deployment_id, ()) if name not in services]
        for deployment_id in ids
    }
    for service in services.values():
        for deployment in service.deployments:
            names[deployment.deployment_id].append(service.name)
    return names


def _refuse_impossible_knob(name: str, value: Any, before: Fleet, market: Market) -> None:
    knobs()[name].check(value)
    if not isinstance(value, Model):
        return
    if not is_name(value.name):
        raise InvalidEdit("the name of a model is printable text of at most 255 characters")
    counts = [getattr(value, field.name) for field in fields(Model) if field.name != "name"]
    if any(count is not None and not 0 < count <= MAX_COUNT for count in counts):
        raise InvalidEdit(f"the shape of {value.name} is not possible: its counts are whole numbers above 0")
    for whole, part in (("params_total", "params_active"), ("n_experts", "n_experts_active")):
        total, active = getattr(value, whole), getattr(value, part)
        if total is not None and active is not None and active > total:
            raise InvalidEdit(f"the shape of {value.name} is not possible: {part} is more than {whole}")
    present = before.models.get(value.name, ())
    known = (*present, market.model(value.name))
    if value not in present and any(deployment is not None and _contradicts(value, deployment) for deployment in known):
        raise InvalidEdit(f"{value.name} has another shape than in the fleet or the catalog")


def _contradicts(stated: Model, known: Model) -> bool:
    pairs = (
        (getattr(stated, field.name), getattr(known, field.name)) for field in fields(Model) if field.name != "name"
    )
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _refuse_impossible_devices(now: Deployment | None, to: Deployment) -> None:
    if len(to.device_ids) > 1 and len(set(to.device_ids)) != len(to.device_ids):
        raise InvalidEdit(f"{to.name} names a device twice")
    if now is not None and (to.device_ids == now.device_ids or (not to.device_ids and to.placement != now.placement)):
        return
    if not to.device_ids:
        if now is not None:
            raise InvalidEdit(f"{to.name} would run on no device: use on(Placement(...)), or release its host")
        return
    laid_out = (to.tp, to.pp, to.dp) != (None, None, None)
    needed = to.n_devices if laid_out or now is None else len(now.device_ids)
    if needed != len(to.device_ids):
        raise InvalidEdit(f"{to.name} needs {needed} devices, and {len(to.device_ids)} are named")


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
