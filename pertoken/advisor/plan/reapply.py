"""Apply a proposal to a fleet that other steps of a plan have changed: a three-way merge by id and field."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from pertoken.advisor.changes.title import DEMAND, with_unit
from pertoken.advisor.groups import shown
from pertoken.state.deployment import Deployment, Expectation, Placement
from pertoken.state.fleet import Device, Fleet, Host, deployments_unlike, services_unlike
from pertoken.state.knobs import InvalidEdit, knobs
from pertoken.state.service import Demand, Service
from pertoken.store.schema.shared import stable_id

T = TypeVar("T", Service, Deployment, Demand, Device)
MAX_SHOWN = 60
"""Maximum characters of a value in a reason."""


class Conflict(InvalidEdit):
    """A proposal does not apply to the changed fleet. The message names the field and its values."""


@dataclass(frozen=True, slots=True)
class _Merge:
    base: Fleet
    proposed: Fleet
    state: Fleet
    key: str


def reapplied(base: Fleet, proposed: Fleet, state: Fleet, key: str) -> Fleet:
    """Return `state` with the changes from `base` to `proposed`; ids of new deployments derive from `key`.

    Proposals that change different fields, or parts of a placement, combine to the same fleet in any order; two that
    set a field to the same value agree. Raises Conflict if `state` has a third value, or lacks a subject of it.
    """
    merge = _Merge(base, proposed, state, key)
    services = _services(merge)
    hosts, devices = _hosts(merge), _devices(merge)
    new = tuple(commitment for commitment in proposed.commitments if commitment not in base.commitments)
    commitments = (*state.commitments, *(commitment for commitment in new if commitment not in state.commitments))
    if new and len(commitments) == len(state.commitments):
        raise Conflict("the commitment is already made")
    merged = Fleet(services, hosts, devices, commitments)
    _refuse_missing_devices(merged, merge)
    return merged


def _services(merge: _Merge) -> tuple[Service, ...]:
    base, proposed, state = merge.base, merge.proposed, merge.state
    unlike = {service.name: service for service in services_unlike(proposed, base)}
    if not unlike:
        return state.services
    gone = {key: deployment for key, deployment in base.deployment_of.items() if key not in proposed.deployment_of}
    for deployment in gone.values():
        if state.deployment_of.get(deployment.deployment_id) != deployment:
            raise Conflict(f"{deployment.name} was changed by another step, and this step merges its earlier state")
    changed: dict[int, Deployment] = {}
    added: dict[int, Deployment] = {}
    for after in deployments_unlike(proposed, base):
        before = base.deployment_of.get(after.deployment_id)
        if before is None:
            number = abs(stable_id("plan", merge.key, after.deployment_id))
            added[after.deployment_id] = replace(after, deployment_id=number)
            continue
        current = state.deployment_of.get(after.deployment_id)
        if current is None:
            before, after, current = _on_merged(before, after, changed, merge)
        changed[current.deployment_id] = _deployment(before, after, current)
    return tuple(_service(service, unlike.get(service.name), gone, changed, added, merge) for service in state.services)


def _on_merged(
    before: Deployment, after: Deployment, changed: Mapping[int, Deployment], merge: _Merge
) -> tuple[Deployment, Deployment, Deployment]:
    """Return a move of a deployment that another step merged, as one of the engine that serves for it, and that.

    Raises Conflict for any other change, or without such an engine.
    """
    names = {name for name, _ in before.serves}
    is_move = replace(before, placement=after.placement, device_ids=after.device_ids) == after
    for made in merge.state.deployments if is_move else ():
        if made.deployment_id not in merge.base.deployment_of and names <= {name for name, _ in made.serves}:
            current = changed.get(made.deployment_id, made)
            devices = current.device_ids if after.device_ids == before.device_ids else after.device_ids
            return replace(before, device_ids=current.device_ids), replace(after, device_ids=devices), current
    raise Conflict(f"{before.name} is removed by another step")


def _service(
    current: Service,
    after: Service | None,
    gone: Mapping[int, Deployment],
    changed: Mapping[int, Deployment],
    added: Mapping[int, Deployment],
    merge: _Merge,
) -> Service:
    if after is None:
        moved = tuple(changed.get(deployment.deployment_id, deployment) for deployment in current.deployments)
        return current if moved == current.deployments else replace(current, deployments=moved)
    before = merge.base.service(current.name)
    current = _three_way(before, after, current, current.name, _FIELDS[Service])
    if after.demand != before.demand:
        label = f"the demand of {current.name}"
        demand = _three_way(before.demand, after.demand, current.demand, label, _FIELDS[Demand])
        current = replace(current, demand=demand)
    known = {deployment.deployment_id for deployment in before.deployments}
    new = [added[deployment.deployment_id] for deployment in after.deployments if deployment.deployment_id not in known]
    staying = [deployment for deployment in current.deployments if deployment.deployment_id not in gone]
    return replace(
        current, deployments=(*(changed.get(deployment.deployment_id, deployment) for deployment in staying), *new)
    )


def _deployment(before: Deployment, after: Deployment, current: Deployment) -> Deployment:
    merged = _three_way(before, after, current, before.name, _FIELDS[Deployment])
    if after.expected == before.expected:
        return merged
    return replace(merged, expected=_both(current.expected, after.expected))


def _both(one: Expectation | None, other: Expectation | None) -> Expectation | None:
    """Return the expectation of two changes together: the product of their ratios."""
    if one is None or other is None or one == other:
        return one or other
    sources = "; ".join(sorted((one.source, other.source)))
    return Expectation(one.low * other.low, one.likely * other.likely, one.high * other.high, sources)


def _three_way(before: T, after: T, current: T, label: str, names: tuple[str, ...]) -> T:
    values: dict[str, Any] = {}
    for name in names:
        old, new, now = getattr(before, name), getattr(after, name), getattr(current, name)
        if new is old or new == old or now == new:  # most values are the same object
            continue
        if now != old and name == "device_ids":
            raise Conflict(f"both move {label}")
        joint = new if now == old else _placement(old, new, now) if isinstance(old, Placement) else None
        if joint is None:
            raise Conflict(f"both set {_label(name)} of {label}: to {_value(name, now)} and to {_value(name, new)}")
        values[name] = joint
    return replace(current, **values) if values else current


def _placement(before: Placement, after: Placement, current: Placement) -> Placement | None:
    """Return the placement of two changes; None if they set a part otherwise, or one is to an offer of its own."""
    if any(place.offer or place.purchase == "per_token" for place in (after, current)):
        return None
    values: dict[str, Any] = {}
    for part in _PARTS:
        old, new, now = ({name: getattr(place, name) for name in part} for place in (before, after, current))
        if old not in (new, now) and new != now:
            return None
        values |= now if new == old else new
    return Placement(**values)


def _hosts(merge: _Merge) -> tuple[Host, ...]:
    staying = {host.host_id for host in merge.proposed.hosts}
    released = [host for host in merge.base.hosts if host.host_id not in staying]
    host_ids = {host.host_id for host in merge.state.hosts}
    for released_host in released:
        if released_host.host_id not in host_ids:
            raise Conflict(f"{released_host.name} is already released by another step")
    gone = {host.host_id for host in released}
    return tuple(host for host in merge.state.hosts if host.host_id not in gone) if gone else merge.state.hosts


def _devices(merge: _Merge) -> tuple[Device, ...]:
    base, proposed = merge.base, merge.proposed
    if proposed.devices is base.devices:
        return merge.state.devices
    after = {device.device_id: device for device in proposed.devices}
    before = {device.device_id: device for device in base.devices}
    merged = []
    for device in merge.state.devices:
        old, new = before[device.device_id], after.get(device.device_id)
        if new is not None:
            merged.append(_three_way(old, new, device, device.name, ("partitions",)))
    return tuple(merged)


def _refuse_missing_devices(merged: Fleet, merge: _Merge) -> None:
    """Raise Conflict if a deployment would run on a device that no longer exists after all steps."""
    released = merged.devices is not merge.state.devices
    for deployment in merged.deployments if released else deployments_unlike(merged, merge.state):
        for device_id in deployment.device_ids:
            if device_id not in merged.device_ids and device_id not in merged.partition_of:
                raise Conflict(f"{deployment.name} runs on a device that is released")


def _names(kind: Any, without: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare and field.name not in without)


_FIELDS: Mapping[type, tuple[str, ...]] = {
    Service: _names(Service, ("name", "deployments", "demand")),
    Deployment: _names(Deployment, ("deployment_id", "epoch_id", "expected", "_")),
    Demand: _names(Demand, ()),
}
_PARTS = (("provider", "accelerator", "instance_type", "devices_per_instance"), ("region", "purchase"))
"""Fields of a placement that change together: an instance is of a provider and accelerator, a price of a region."""
_LABELS = {"replicas": "the number of replicas", "serves": "the shares"}


def _label(name: str) -> str:
    if name in knobs():
        return knobs()[name].label
    return _LABELS.get(name) or DEMAND.get(f"demand.{name}", (name.replace("_", " "),))[0]


def _value(name: str, value: object) -> str:
    if isinstance(value, Placement):
        at = (value.accelerator, value.instance_type, value.provider, value.region, value.purchase)
        return ", ".join(part for part in at if part) or "unknown"
    quantity = getattr(value, "value", None)
    text = (
        f"{quantity:.4g}"
        if isinstance(quantity, float)
        else with_unit(name, value)
        if name in knobs()
        else shown(value)
    )
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
