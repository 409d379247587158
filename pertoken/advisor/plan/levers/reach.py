"""Devices and hosts affected by a change: those that it may free, add deployments to, release or commit to."""

from pertoken.advisor.checks.candidate import Candidate
from pertoken.state.deployment import Commitment
from pertoken.state.fleet import Fleet, Host, deployments_unlike


def commitments(base: Fleet, change: Candidate) -> tuple[Commitment, ...]:
    """Return the new commitments of a change."""
    return tuple(commitment for commitment in change.after.commitments if commitment not in base.commitments)


def covers(commitment: Commitment, host: Host) -> bool:
    """Return whether a commitment applies to instances like this host."""
    at = host.placement
    same = (at.provider, at.instance_type) == (commitment.provider, commitment.instance_type)
    return same and commitment.region in (None, at.region)


def committed_hosts(base: Fleet, change: Candidate) -> frozenset[int]:
    """Return the ids of the hosts covered by the new commitments of a change."""
    made = commitments(base, change)
    return frozenset(host.host_id for host in base.hosts if any(covers(commitment, host) for commitment in made))


def freed_devices(base: Fleet, change: Candidate) -> frozenset[int]:
    """Return the ids of the devices that a change may free or add deployments to."""
    after, devices = change.after, set[int]()
    moving = {deployment.deployment_id for deployment in change.diff.removed}
    for edit in change.diff.changes:
        if edit.kind == "service" and edit.field in ("replicas", "schedule"):
            moving |= {one.deployment_id for one in base.service(str(edit.target)).deployments}
    for to in deployments_unlike(after, base):
        now = base.deployment_of.get(to.deployment_id)
        if now is None or now.device_ids != to.device_ids or (to.n_devices or 0) < len(now.device_ids):
            devices.update(to.device_ids)
            moving.add(to.deployment_id)
    devices.update(held for key in moving if key in base.deployment_of for held in base.deployment(key).device_ids)
    parts = base.partition_of
    return frozenset(parts[device][0].device_id if device in parts else device for device in devices) & base.device_ids


def acted_on(base: Fleet, change: Candidate, freed: frozenset[int]) -> frozenset[int]:
    """Return the ids of the hosts that a change releases, and the hosts of `freed` devices."""
    released = {host.host_id for host in change.diff.released}
    return frozenset(base.device(device_id).host_id for device_id in freed) | released
