"""Levers of a plan: variants of recommendations, their subjects, their conflicts and their groups.

Front door: `levers`, `covers`, `reapplied` (a lever after others), `conflicts` and `groups`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from pertoken.advisor.changes.title import DEMAND, shown, with_unit
from pertoken.advisor.checks import refusal_by_settings
from pertoken.advisor.plan.plan import EFFORTS, LeftOut, PlanLimits
from pertoken.advisor.present import Present
from pertoken.advisor.proposals import Candidate, candidate
from pertoken.errors import BadInput
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.state.deployment import Commitment, Deployment, Expectation, InvalidEdit, Placement, knobs
from pertoken.state.fleet import Device, Fleet, Host, deployments_unlike, services_unlike
from pertoken.state.service import Demand, Service
from pertoken.store.schema.shared import stable_id

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def covers(commitment: Commitment, host: Host) -> bool:
    """Return whether a commitment applies to instances like this host."""
    placement = host.placement
    same = (placement.provider, placement.instance_type) == (commitment.provider, commitment.instance_type)
    return same and commitment.region in (None, placement.region)


LEFT_OUT = "you left it out"
_ORDER = tuple(EFFORTS.values())


@dataclass(frozen=True, eq=False)
class Lever:
    """One variant of a recommendation."""

    base: Fleet
    """The present fleet."""
    row: Recommendation
    variant: Variant
    change: Candidate
    """The change of `base`."""

    @cached_property
    def key(self) -> tuple[str, str, str, str]:
        """Identity and sort key, independent of the order in which rules were loaded."""
        return self.row.rule_id, self.row.target_kind, self.row.target_key, self.variant.key

    @property
    def name(self) -> str:
        """Key as one text."""
        return "\x1f".join(self.key)

    @property
    def effort(self) -> str:
        """`minutes`, `hours` or `days`."""
        return EFFORTS[self.variant.effort]

    @property
    def touches(self) -> frozenset[str]:
        """Changed services and hosts: `service:NAME`, `host:ID`."""
        return frozenset(self.variant.touches)

    @cached_property
    def freed(self) -> frozenset[int]:
        """Ids of the devices that it may free or add deployments to."""
        base, after, devices = self.base, self.change.after, set[int]()
        moving = {deployment.deployment_id for deployment in self.change.diff.removed}
        for edit in self.change.diff.changes:
            if edit.kind == "service" and edit.field in ("replicas", "schedule"):
                moving |= {replica.deployment_id for replica in base.service(str(edit.target)).deployments}
        for to in deployments_unlike(after, base):
            present = base.deployment_of.get(to.deployment_id)
            if present is None or present.device_ids != to.device_ids or (to.n_devices or 0) < len(present.device_ids):
                devices.update(to.device_ids)
                moving.add(to.deployment_id)
        devices.update(held for key in moving if key in base.deployment_of for held in base.deployment(key).device_ids)
        parts = base.partition_of
        whole_devices = {parts[device][0].device_id if device in parts else device for device in devices}
        return base.device_ids & whole_devices

    @cached_property
    def hosts(self) -> frozenset[int]:
        """Ids of the hosts that it releases, and the hosts of `freed`."""
        released = {host.host_id for host in self.change.diff.released}
        return frozenset(self.base.device(device_id).host_id for device_id in self.freed) | released

    @cached_property
    def committed(self) -> frozenset[int]:
        """Ids of the hosts covered by its commitments."""
        made = [commitment for commitment in self.change.after.commitments if commitment not in self.base.commitments]
        return frozenset(
            host.host_id for host in self.base.hosts if any(covers(commitment, host) for commitment in made)
        )

    @cached_property
    def is_commitment(self) -> bool:
        """Whether it only makes commitments."""
        return bool(self.change.diff.changes) and all(change.kind == "fleet" for change in self.change.diff.changes)

    @cached_property
    def is_schedule(self) -> bool:
        """Whether it changes a schedule."""
        return any(change.field == "schedule" for change in self.change.diff.changes)

    def left_out(self, reason: str) -> LeftOut:
        """Return it as left out of a plan."""
        return LeftOut(self.row.rule_id, self.row.recommendation_id, self.variant.title, self.row.target, reason)


def levers(
    gathered: Present, recommendations: Iterable[Recommendation], limits: PlanLimits
) -> tuple[tuple[Lever, ...], tuple[LeftOut, ...]]:
    """Return the priced variants of open recommendations in their order by key, and those left out from the start.

    Raises BadInput for an effort that is none.
    """
    if limits.max_effort not in _ORDER:
        raise BadInput(f"max effort {limits.max_effort!r} is not possible: use {', '.join(_ORDER)}")
    kept: list[Lever] = []
    left_out: list[LeftOut] = []
    for row in recommendations:
        for variant in row.variants if row.state is State.OPEN else ():
            lever = _lever(gathered, row, variant, limits)
            if isinstance(lever, Lever):
                kept.append(lever)
            else:
                left_out.append(LeftOut(row.rule_id, row.recommendation_id, variant.title, row.target, lever))
    return tuple(sorted(kept, key=lambda lever: lever.key)), tuple(left_out)


def _lever(gathered: Present, row: Recommendation, variant: Variant, limits: PlanLimits) -> Lever | str:
    """Return a variant as a lever, or why it cannot be one."""
    if row.recommendation_id in limits.without:
        return LEFT_OUT
    if row.unconfirmed is not None:
        return f"the last run did not confirm it: {row.unconfirmed}"
    if row.rule_id in limits.exclude:
        return f"{row.rule_id} is excluded"
    if _ORDER.index(EFFORTS[variant.effort]) > _ORDER.index(limits.max_effort):
        return f"it takes {EFFORTS[variant.effort]}, and at most {limits.max_effort} are asked for"
    if variant.uncounted is not None:
        return f"no money is counted for it: {variant.uncounted}"
    if not variant.proposal:
        return "it was stored by an older version: run `pertoken advise` again"
    base, market = gathered.fleet, gathered.context.market
    try:
        configured = row.rule_id in gathered.configured_rules
        change = candidate(base, json.loads(variant.proposal), None, market, configured=configured)
    except ValueError as error:
        return f"it does not apply any more: {error}"
    if change is None:
        return "it runs already"
    refused = refusal_by_settings(change.diff, base, change.after, gathered.forbidden)
    return refused.reason if refused is not None else Lever(base, row, variant, change)


Record = TypeVar("Record", bound="DataclassInstance")
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
        original = base.deployment_of.get(after.deployment_id)
        if original is None:
            number = abs(stable_id("plan", merge.key, after.deployment_id))
            added[after.deployment_id] = replace(after, deployment_id=number)
            continue
        current = state.deployment_of.get(after.deployment_id)
        if current is None:
            original, after, current = _on_merged(original, after, changed, merge)
        changed[current.deployment_id] = _deployment(original, after, current)
    return tuple(_service(service, unlike.get(service.name), gone, changed, added, merge) for service in state.services)


def _on_merged(
    original: Deployment, after: Deployment, changed: Mapping[int, Deployment], merge: _Merge
) -> tuple[Deployment, Deployment, Deployment]:
    """Return a move of a deployment that another step merged, as one of the engine that serves for it, and that.

    Raises Conflict for any other change, or without such an engine.
    """
    names = {name for name, _ in original.serves}
    is_move = replace(original, placement=after.placement, device_ids=after.device_ids) == after
    for made in merge.state.deployments if is_move else ():
        if made.deployment_id not in merge.base.deployment_of and names <= {name for name, _ in made.serves}:
            current = changed.get(made.deployment_id, made)
            devices = current.device_ids if after.device_ids == original.device_ids else after.device_ids
            return replace(original, device_ids=current.device_ids), replace(after, device_ids=devices), current
    raise Conflict(f"{original.name} is removed by another step")


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
    original = merge.base.service(current.name)
    current = _three_way(original, after, current, current.name, _FIELDS[Service])
    if after.demand != original.demand:
        label = f"the demand of {current.name}"
        demand = _three_way(original.demand, after.demand, current.demand, label, _FIELDS[Demand])
        current = replace(current, demand=demand)
    original_ids = {deployment.deployment_id for deployment in original.deployments}
    new = [
        added[deployment.deployment_id]
        for deployment in after.deployments
        if deployment.deployment_id not in original_ids
    ]
    staying = [deployment for deployment in current.deployments if deployment.deployment_id not in gone]
    return replace(
        current, deployments=(*(changed.get(deployment.deployment_id, deployment) for deployment in staying), *new)
    )


def _deployment(original: Deployment, after: Deployment, current: Deployment) -> Deployment:
    merged = _three_way(original, after, current, original.name, _FIELDS[Deployment])
    if after.expected == original.expected:
        return merged
    return replace(merged, expected=_both(current.expected, after.expected))


def _both(first: Expectation | None, second: Expectation | None) -> Expectation | None:
    """Return the expectation of two changes together: the product of their ratios."""
    if first is None or second is None or first == second:
        return first or second
    sources = "; ".join(sorted((first.source, second.source)))
    return Expectation(first.low * second.low, first.likely * second.likely, first.high * second.high, sources)


def _three_way(original: Record, after: Record, current: Record, label: str, names: tuple[str, ...]) -> Record:
    values: dict[str, object] = {}
    for name in names:
        old, new, current_value = getattr(original, name), getattr(after, name), getattr(current, name)
        if new is old or new == old or current_value == new:  # most values are the same object
            continue
        if current_value != old and name == "device_ids":
            raise Conflict(f"both move {label}")
        joint = (
            new if current_value == old else _placement(old, new, current_value) if isinstance(old, Placement) else None
        )
        if joint is None:
            raise Conflict(
                f"both set {_label(name)} of {label}: to {_value(name, current_value)} and to {_value(name, new)}"
            )
        values[name] = joint
    return replace(current, **values) if values else current


def _placement(original: Placement, after: Placement, current: Placement) -> Placement | None:
    """Return the placement of two changes; None if they set a part otherwise, or one is to an offer of its own."""
    if any(placement.offer or placement.purchase == "per_token" for placement in (after, current)):
        return None
    merged = []
    for part in _PARTS:
        old, new, current_values = (
            {name: getattr(placement, name) for name in part} for placement in (original, after, current)
        )
        if old not in (new, current_values) and new != current_values:
            return None
        merged.append(current_values if new == old else new)
    return Placement(**{name: value for values in merged for name, value in values.items()})


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
    base_by_id = {device.device_id: device for device in base.devices}
    merged = []
    for device in merge.state.devices:
        old, new = base_by_id[device.device_id], after.get(device.device_id)
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


def _names(kind: type, without: tuple[str, ...]) -> tuple[str, ...]:
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
        parts = (value.accelerator, value.instance_type, value.provider, value.region, value.purchase)
        return ", ".join(part for part in parts if part) or "unknown"
    quantity = getattr(value, "value", None)
    text = (
        f"{quantity:.4g}"
        if isinstance(quantity, float)
        else with_unit(name, value)
        if name in knobs()
        else shown(value)
    )
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


Conflicts = dict[tuple[int, int], str]
"""Pairs of positions of levers that cannot be in one plan, in both orders, with the reason."""


def conflicts(levers: Sequence[Lever]) -> Conflicts:
    """Return the pairs of levers that cannot be in one plan."""
    reasons: Conflicts = {}
    for index, lever in enumerate(levers):
        for beside in range(index + 1, len(levers)):
            reason = conflict(lever, levers[beside])
            if reason is not None:
                reasons[index, beside] = reasons[beside, index] = reason
    return reasons


def conflict(first: Lever, second: Lever) -> str | None:
    """Return why two levers cannot be in one plan; None if they can."""
    if first.key[:3] == second.key[:3]:
        return "they are alternatives of one recommendation"
    on_hosts = first.hosts | first.committed, second.hosts | second.committed
    if not (first.touches & second.touches or on_hosts[0] & on_hosts[1]):
        return None
    for stated, beside in ((first, second), (second, first)):
        if beside.row.rule_id in stated.variant.excludes:
            return f"{stated.row.rule_id} excludes {beside.row.rule_id}"
        if stated.committed & beside.committed:
            return "they commit to the same instances"
        if stated.committed & beside.hosts:
            return "one commits for years to instances that the other may release"
        if stated.is_schedule and stated.hosts & beside.hosts and not _of_one_service(stated, beside):
            return (
                "a schedule and another change on the same hosts are not priced together: apply one, then run "
                "`pertoken advise` again"
            )
    clashes = [_clash(first, second), _clash(second, first)]
    return clashes[0] if None not in clashes else None  # it is enough if they combine in one order


def _of_one_service(first: Lever, second: Lever) -> bool:
    """Return whether both change the same single service: its parts are priced together."""
    services = [{name for name in lever.touches if name.startswith("service:")} for lever in (first, second)]
    return len(services[0]) == 1 and services[0] == services[1] and not second.change.diff.released


def _clash(first: Lever, second: Lever) -> str | None:
    """Return why the second cannot be applied after the first."""
    try:
        after = reapplied(first.base, second.change.after, first.change.after, second.name)
    except InvalidEdit as error:
        return str(error)
    return "the first already includes the second" if after == first.change.after else None


Unit = tuple[str | None, str | None]
"""Provider and instance type of hosts."""


def groups(base: Fleet, levers: Sequence[Lever]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of levers by group, in order, groups sorted by their first lever.

    Levers that only make commitments are in no group: conflicts describe all their interactions.
    """
    within = [index for index, lever in enumerate(levers) if not lever.is_commitment]
    releasable = _releasable(base, [levers[index] for index in within])
    committed = {
        host.host_id: (host.placement.provider, host.placement.instance_type)
        for host in base.hosts
        if any(covers(commitment, host) for commitment in base.commitments)
    }
    first: dict[object, int] = {}
    leader = {index: index for index in within}

    def top(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    for index in within:
        for shared in _shared(levers[index], releasable, committed):
            low, high = sorted((top(first.setdefault(shared, index)), top(index)))
            leader[high] = low
    positions_by_root: dict[int, list[int]] = defaultdict(list)
    for index in within:
        positions_by_root[top(index)].append(index)
    return tuple(tuple(positions) for _, positions in sorted(positions_by_root.items()))


def _releasable(base: Fleet, levers: Iterable[Lever]) -> frozenset[int]:
    """Return the ids of the hosts that could become free if every lever were part of a plan."""
    freed, released = set[int](), set[int]()
    for lever in levers:
        freed |= lever.freed
        released |= {host.host_id for host in lever.change.diff.released}
    return frozenset(
        host_id
        for host_id, accelerators in base.accelerators_on.items()
        if host_id in released or not (accelerators & base.used_devices) - freed
    )


def _shared(lever: Lever, releasable: frozenset[int], committed: Mapping[int, Unit]) -> Iterator[object]:
    """Yield keys of subjects that a lever touches: levers with a common key are in one group."""
    yield from (touched for touched in lever.touches if touched.startswith("service:"))
    for host in sorted(lever.hosts & releasable):
        yield host
        if host in committed:  # the number of released hosts of a kind determines the use of its commitment
            yield committed[host]
