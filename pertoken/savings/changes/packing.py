"""Placement of fewer replicas on devices, so that whole hosts become free."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pertoken.savings.context import Context
from pertoken.savings.hosts import host_price
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Packed:
    """Replicas on devices of the fleet, and how many more need devices that it does not have."""

    placed: tuple[Deployment, ...]
    missing: int


def packed(before: Fleet, replicas: Sequence[Deployment], like: Deployment, count: int, context: Context) -> Packed:
    """Place `count` replicas of `like` on the devices that `replicas` run on now, each on one host.

    Hosts that others use too are filled first, since they stay anyway, then the cheapest per device. A device that
    others use too is not counted. Raises NoPrice.
    """
    needed = like.n_devices or 1
    ids = {replica.deployment_id for replica in replicas}
    alone: dict[int, list[int]] = {}
    for device_id in sorted({device_id for one in replicas for device_id in one.device_ids}):
        if {deployment.deployment_id for deployment in before.deployments_by_device[device_id]} <= ids:
            alone.setdefault(before.device(device_id).host_id, []).append(device_id)

    def order(host_id: int) -> tuple[bool, float, int]:
        host = before.host(host_id)
        leaves = {deployment.deployment_id for deployment in before.deployments_on(host)} <= ids
        return leaves, host_price(before, host, context) / len(alone[host_id]), host_id

    slots = [
        tuple(alone[host_id][at : at + needed])
        for host_id in sorted(alone, key=order)
        for at in range(0, len(alone[host_id]) - needed + 1, needed)
    ]
    return Packed(tuple(replace(like, device_ids=slot) for slot in slots[:count]), max(0, count - len(slots)))
