"""What a change reaches: devices that it may free or bring work to, their hosts, and those that it commits to."""

from pertoken.advisor.checks.candidate import Candidate
from pertoken.state.fleet import Fleet, deployments_unlike
from pertoken.state.host import Host
from pertoken.state.placement import Commitment


def commitments(base: Fleet, change: Candidate) -> tuple[Commitment, ...]:
    """Return the commitments that a change makes."""
    return tuple(each for each in change.after.commitments if each not in base.commitments)


def covers(commitment: Commitment, host: Host) -> bool:
    """Return whether a commitment is for instances like this host."""
    at = host.placement
    same = (at.provider, at.instance_type) == (commitment.provider, commitment.instance_type)
    return same and commitment.region in (None, at.region)


def committed_hosts(base: Fleet, change: Candidate) -> frozenset[int]:
    """Return the ids of the hosts that the commitments of a change are for."""
    made = commitments(base, change)
    return frozenset(host.host_id for host in base.hosts if any(covers(each, host) for each in made))


def freed_devices(base: Fleet, change: Candidate) -> frozenset[int]:
    """Return the ids of the devices that a change may free, or that it brings work to."""
    after, devices = change.after, set[int]()
    moving = {each.deployment_id for each in change.diff.removed}
    for each in change.diff.changes:
        if each.kind == "service" and each.field in ("replicas", "schedule"):
            moving |= {one.deployment_id for one in base.service(str(each.target)).deployments}
    for to in deployments_unlike(after, base):
        now = base.deployment_of.get(to.deployment_id)
        if now is None or now.device_ids != to.device_ids or (to.n_devices or 0) < len(now.device_ids):
            devices.update(to.device_ids)
            moving.add(to.deployment_id)
    devices.update(held for key in moving if key in base.deployment_of for held in base.deployment(key).device_ids)
    parts = base.partition_of
    return frozenset(parts[each][0].device_id if each in parts else each for each in devices) & base.device_ids


def acted_on(base: Fleet, change: Candidate, freed: frozenset[int]) -> frozenset[int]:
    """Return the ids of the hosts that a change releases, or of which it `freed` devices."""
    released = {each.host_id for each in change.diff.released}
    return frozenset(base.device(each).host_id for each in freed) | released
