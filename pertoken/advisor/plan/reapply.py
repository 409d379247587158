"""Apply a proposal to a fleet that other steps of a plan have changed: a three-way merge by id and field."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from pertoken.advisor.changes.title import DEMAND, with_unit
from pertoken.advisor.groups import shown
from pertoken.state.demand import Demand
from pertoken.state.deployment import Deployment, Expectation
from pertoken.state.errors import InvalidEdit
from pertoken.state.fleet import Fleet, deployments_unlike, services_unlike
from pertoken.state.host import Device, Host
from pertoken.state.knobs import knobs
from pertoken.state.placement import Placement
from pertoken.state.service import Service
from pertoken.store.schema.ids import stable_id

T = TypeVar("T", Service, Deployment, Demand, Device)
MAX_SHOWN = 60
"""Characters of a value in a reason."""


class Conflict(InvalidEdit):
    """A proposal does not apply to the changed fleet. The message states which field, and how it differs."""


@dataclass(frozen=True, slots=True)
class _Merge:
    base: Fleet
    proposed: Fleet
    state: Fleet
    key: str


def reapplied(base: Fleet, proposed: Fleet, state: Fleet, key: str) -> Fleet:
    """Return `state` with what leads from `base` to `proposed`; `key` names the proposal and its new deployments.

    Proposals that change different fields combine, in any order to the same fleet; two that set one field to one value
    agree. Raises Conflict where `state` has another value than both, or lacks what the proposal is about.
    """
    merge = _Merge(base, proposed, state, key)
    services = _services(merge)
    hosts, devices = _hosts(merge), _devices(merge)
    new = tuple(each for each in proposed.commitments if each not in base.commitments)
    commitments = (*state.commitments, *(each for each in new if each not in state.commitments))
    if new and len(commitments) == len(state.commitments):
        raise Conflict("the commitment is made already")
    merged = Fleet(services, hosts, devices, commitments)
    _refuse_missing_devices(merged, merge)
    return merged


def _services(merge: _Merge) -> tuple[Service, ...]:
    base, proposed, state = merge.base, merge.proposed, merge.state
    unlike = {each.name: each for each in services_unlike(proposed, base)}
    if not unlike:
        return state.services
    gone = {key: each for key, each in base.deployment_of.items() if key not in proposed.deployment_of}
    for each in gone.values():
        if state.deployment_of.get(each.deployment_id) != each:
            raise Conflict(f"{each.name} was changed by another step, and this one merges it as it was")
    changed, added = {}, {}
    for after in deployments_unlike(proposed, base):
        before = base.deployment_of.get(after.deployment_id)
        if before is None:
            number = abs(stable_id("plan", merge.key, after.deployment_id))
            added[after.deployment_id] = replace(after, deployment_id=number)
            continue
        there = state.deployment_of.get(after.deployment_id)
        if there is None:
            raise Conflict(f"{before.name} does not run any more after another step")
        changed[after.deployment_id] = _deployment(before, after, there)
    return tuple(_service(each, unlike.get(each.name), gone, changed, added, merge) for each in state.services)


def _service(
    there: Service,
    after: Service | None,
    gone: Mapping[int, Deployment],
    changed: Mapping[int, Deployment],
    added: Mapping[int, Deployment],
    merge: _Merge,
) -> Service:
    if after is None:
        return there
    before = merge.base.service(there.name)
    there = _three_way(before, after, there, there.name, _FIELDS[Service])
    if after.demand != before.demand:
        label = f"the demand of {there.name}"
        demand = _three_way(before.demand, after.demand, there.demand, label, _FIELDS[Demand])
        there = replace(there, demand=demand)
    known = {each.deployment_id for each in before.deployments}
    new = [added[each.deployment_id] for each in after.deployments if each.deployment_id not in known]
    staying = [each for each in there.deployments if each.deployment_id not in gone]
    return replace(there, deployments=(*(changed.get(each.deployment_id, each) for each in staying), *new))


def _deployment(before: Deployment, after: Deployment, there: Deployment) -> Deployment:
    merged = _three_way(before, after, there, before.name, _FIELDS[Deployment])
    if after.expected == before.expected:
        return merged
    return replace(merged, expected=_both(there.expected, after.expected))


def _both(one: Expectation | None, other: Expectation | None) -> Expectation | None:
    """Return the expectation of two changes together: their ratios multiply."""
    if one is None or other is None or one == other:
        return one or other
    sources = "; ".join(sorted((one.source, other.source)))
    return Expectation(one.low * other.low, one.likely * other.likely, one.high * other.high, sources)


def _three_way(before: T, after: T, there: T, label: str, names: tuple[str, ...]) -> T:
    values: dict[str, Any] = {}
    for name in names:
        old, new, now = getattr(before, name), getattr(after, name), getattr(there, name)
        if new is old or new == old or now == new:  # most values are shared, and need not be compared
            continue
        if now != old and name == "device_ids":
            raise Conflict(f"both move {label}")
        if now != old:
            raise Conflict(f"both set {_label(name)} of {label}: to {_value(name, now)} and to {_value(name, new)}")
        values[name] = new
    return replace(there, **values) if values else there


def _hosts(merge: _Merge) -> tuple[Host, ...]:
    staying = {each.host_id for each in merge.proposed.hosts}
    released = [each for each in merge.base.hosts if each.host_id not in staying]
    there = {each.host_id for each in merge.state.hosts}
    for each in released:
        if each.host_id not in there:
            raise Conflict(f"{each.name} is released by another step already")
    gone = {each.host_id for each in released}
    return tuple(each for each in merge.state.hosts if each.host_id not in gone) if gone else merge.state.hosts


def _devices(merge: _Merge) -> tuple[Device, ...]:
    base, proposed = merge.base, merge.proposed
    if proposed.devices is base.devices:
        return merge.state.devices
    after = {each.device_id: each for each in proposed.devices}
    before = {each.device_id: each for each in base.devices}
    merged = []
    for there in merge.state.devices:
        old, new = before[there.device_id], after.get(there.device_id)
        if new is not None:
            merged.append(_three_way(old, new, there, there.name, ("partitions",)))
    return tuple(merged)


def _refuse_missing_devices(merged: Fleet, merge: _Merge) -> None:
    """Raise Conflict where something would run on a device that is not there after all steps."""
    released = merged.devices is not merge.state.devices
    for each in merged.deployments if released else deployments_unlike(merged, merge.state):
        for device_id in each.device_ids:
            if device_id not in merged.device_ids and device_id not in merged.partition_of:
                raise Conflict(f"{each.name} runs on a device that is released")


def _names(kind: Any, without: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name not in without)


_FIELDS: Mapping[type, tuple[str, ...]] = {
    Service: _names(Service, ("name", "deployments", "demand")),
    Deployment: _names(Deployment, ("deployment_id", "epoch_id", "expected", "_")),
    Demand: _names(Demand, ()),
}
_LABELS = {"replicas": "the number of replicas", "serves": "the shares"}


def _label(name: str) -> str:
    if name in knobs():
        return knobs()[name].label
    return _LABELS.get(name) or DEMAND.get(f"demand.{name}", (name.replace("_", " "),))[0]


def _value(name: str, value: object) -> str:
    if isinstance(value, Placement):
        at = (value.accelerator, value.instance_type, value.provider, value.region, value.purchase)
        return ", ".join(each for each in at if each) or "unknown"
    quantity = getattr(value, "value", None)
    text = (
        f"{quantity:.4g}"
        if isinstance(quantity, float)
        else with_unit(name, value)
        if name in knobs()
        else shown(value)
    )
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
