"""Difference of two fleets: the one input of price, SLO verdict, commands, undo, title and identity."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from pertoken.state.deployment import Deployment, InvalidEdit, Model, Placement, is_name, knobs
from pertoken.state.fleet import Fleet, Host, deployments_unlike, services_unlike
from pertoken.state.service import Service


@dataclass(frozen=True, slots=True)
class Change:
    """One field of one service, deployment, device or fleet, before and after."""

    kind: str
    """`service`, `deployment`, `device` or `fleet`."""
    target: int | str
    """Name of a service, else an id; the fleet's is 0."""
    field: str
    """A knob, `placement.purchase`, `demand.output_len`, `replicas`, ..."""
    before: Any
    after: Any


@dataclass(frozen=True)
class Diff:
    """The difference of two fleets; empty for a proposal that equals the present."""

    changes: tuple[Change, ...] = ()
    added: tuple[Deployment, ...] = ()
    removed: tuple[Deployment, ...] = ()
    released: tuple[Host, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.added or self.removed or self.released)

    def of(self, kind: str, target: int | str) -> dict[str, tuple[Any, Any]]:
        """Return the changes of one target, as `{field: (before, after)}`."""
        return {change.field: (change.before, change.after) for change in self._by_target.get((kind, target), ())}

    @cached_property
    def _by_target(self) -> Mapping[tuple[str, int | str], Sequence[Change]]:
        changes: dict[tuple[str, int | str], list[Change]] = defaultdict(list)
        for change in self.changes:
            changes[change.kind, change.target].append(change)
        return changes

    def knobs(self, deployment_id: int) -> dict[str, tuple[object, object]]:
        """Return the knobs of a deployment that change, as `{knob: (before, after)}`."""
        return {name: pair for name, pair in self.of("deployment", deployment_id).items() if name in knobs()}

    @property
    def targets(self) -> tuple[int | str, ...]:
        """Services and deployments that change, each once."""
        return tuple(
            dict.fromkeys(change.target for change in self.changes if change.kind in ("service", "deployment"))
        )

    @property
    def models(self) -> frozenset[str]:
        """Names of the models that deployments change to."""
        changed = (change.after for change in self.changes if change.kind == "deployment" and change.field == "model")
        models = (*changed, *(deployment.model for deployment in self.added))
        return frozenset(model.name for model in models if isinstance(model, Model) and is_name(model.name))

    def keeps_replicas(self, present: Fleet) -> bool:
        """Return whether it only sets numbers of replicas that run now."""
        return not (self.added or self.removed or self.released) and all(
            change.field == "replicas" and change.after == len(present.service(str(change.target)).deployments)
            for change in self.changes
        )

    @cached_property
    def key(self) -> str:
        """Identity of a variant: equal for equal changes, whatever they cost. 16 hexadecimal digits.

        They are of the difference as JSON with sorted keys, without `_NOT_IDENTITY`.
        """
        changes = [
            {
                "kind": change.kind,
                "target": change.target,
                "field": change.field,
                "before": plain(change.before),
                "after": plain(change.after),
            }
            for change in self.changes
            if change.field != "placement.offer"
        ]
        parts = {"added": plain(self.added), "released": plain(self.released), "removed": plain(self.removed)}
        text = json.dumps({**parts, "changes": changes}, sort_keys=True)
        return blake2b(text.encode(), digest_size=8, person=b"pertoken").hexdigest()


def diff(present: Fleet, after: Fleet) -> Diff:
    """Compare two fleets by id.

    Raises InvalidEdit if no edit leads from one to the other: a service is missing or added, a host or device was
    added, or a device is missing from a host that stays.
    """
    _refuse_impossible(present, after)
    hosts = {host.host_id for host in after.hosts}
    return Diff(
        changes=tuple(_changes(present, after)),
        added=tuple(
            deployment
            for deployment in deployments_unlike(after, present)
            if deployment.deployment_id not in present.listed_by
        ),
        removed=_removed(present, after),
        released=() if after.hosts is present.hosts else tuple(e for e in present.hosts if e.host_id not in hosts),
    )


def _removed(present: Fleet, after: Fleet) -> tuple[Deployment, ...]:
    remaining_ids = {
        deployment.deployment_id for service in services_unlike(after, present) for deployment in service.deployments
    }
    changed = (
        deployment
        for service in services_unlike(after, present)
        for deployment in present.service(service.name).deployments
    )
    missing = {
        deployment.deployment_id: deployment for deployment in changed if deployment.deployment_id not in remaining_ids
    }
    return tuple(deployment for key, deployment in missing.items() if key not in after.listed_by)


def _refuse_impossible(present: Fleet, after: Fleet) -> None:
    edited = services_unlike(after, present)
    if len(after.services) != len(present.services) or any(
        service.name not in present.service_of for service in edited
    ):
        _refuse_different("services", set(present.service_of), {service.name for service in after.services})
    if present.devices is after.devices and present.hosts is after.hosts:
        return
    if present.devices != after.devices or present.hosts != after.hosts:
        _refuse_different("devices on hosts that stay", _devices(present, after), _devices(after, after))
    if added := {host.host_id for host in after.hosts} - {host.host_id for host in present.hosts}:
        raise InvalidEdit(f"the proposal has hosts that the fleet has not: {sorted(added)}")


def _refuse_different(what: str, known_names: set[str], new_names: set[str]) -> None:
    if known_names != new_names:
        raise InvalidEdit(f"the proposal has other {what} than the fleet: {', '.join(sorted(known_names ^ new_names))}")


def _devices(fleet: Fleet, after: Fleet) -> set[str]:
    staying = {host.host_id for host in after.hosts}
    return {f"{device.name} ({device.device_id})" for device in fleet.devices if device.host_id in staying}


def _changes(present_fleet: Fleet, after: Fleet) -> Iterator[Change]:
    services = {service.name: service for service in services_unlike(after, present_fleet)}
    changed = [service for service in present_fleet.services if service.name in services]
    for service in changed:
        yield from _service_changes(service, services[service.name])
    deployments = {deployment.deployment_id: deployment for deployment in deployments_unlike(after, present_fleet)}
    present = {deployment.deployment_id: deployment for service in changed for deployment in service.deployments}
    yield from _deployment_changes(
        (deployment, deployments[deployment_id])
        for deployment_id, deployment in present.items()
        if deployment_id in deployments
    )
    same_devices = present_fleet.devices is after.devices
    devices = {} if same_devices else {device.device_id: device for device in after.devices}
    for device in () if same_devices else present_fleet.devices:
        same = devices.get(device.device_id)
        if same is not None and device.partitions != same.partitions:
            profiles = [tuple(part.profile for part in entry.partitions) for entry in (device, same)]
            yield Change("device", device.device_id, "partitions", *profiles)
    if present_fleet.commitments != after.commitments:
        yield Change("fleet", 0, "commitments", present_fleet.commitments, after.commitments)


def _service_changes(service: Service, to: Service) -> Iterator[Change]:
    for name in ("replicas", "schedule", "min_replicas", "spare_replicas", "isolation", "slo", "labels"):
        if getattr(service, name) != getattr(to, name):
            yield Change("service", service.name, name, getattr(service, name), getattr(to, name))
    for field in fields(service.demand):
        present, proposed = getattr(service.demand, field.name), getattr(to.demand, field.name)
        if present != proposed:
            yield Change("service", service.name, f"demand.{field.name}", present, proposed)


def _deployment_changes(pairs: Iterable[tuple[Deployment, Deployment]]) -> Iterator[Change]:
    for present, proposed in pairs:
        for name in _changed(present, proposed):
            value_of = attrgetter(name)
            yield Change("deployment", present.deployment_id, name, value_of(present), value_of(proposed))
        for name in ("device_ids", "serves", "restart"):
            value, new_value = getattr(present, name), getattr(proposed, name)
            if value != new_value:
                yield Change("deployment", present.deployment_id, name, value, new_value)


def _changed(deployment: Deployment, to: Deployment) -> Iterator[str]:
    """Return the knobs and the fields of the placement that differ."""
    yield from deployment.knob_changes(to)
    for field in fields(Placement):
        if getattr(deployment.placement, field.name) != getattr(to.placement, field.name):
            yield f"placement.{field.name}"


_NOT_IDENTITY = ("offer", "nano_usd_per_instance_hour", "expected", "epoch_id", "confirmed", "share_source")
"""Fields of the cost, the promise or the source of a change, which do not identify it."""


_PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types that are JSON values as they are; those made of them are not."""


@cache
def _identity(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a record by which two of them differ; None for a type that is no record."""
    if not is_dataclass(kind):
        return None
    return tuple(field.name for field in fields(kind) if field.compare and field.name not in _NOT_IDENTITY)


def plain(value: object) -> object:
    """Return a state value as JSON values, without `_NOT_IDENTITY`; a model is its name."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Model):
        return value.name
    kind: type = type(value)
    if (names := _identity(kind)) is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, frozenset | set):
        return [plain(entry) for entry in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return value
