"""Devices that several deployments run on: the busy time of each is its share of the device's price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet

DeploymentsByDevice = Mapping[int, Sequence[Deployment]]
"""Deployments by device id, as `Fleet.deployments_by_device`."""


@dataclass(frozen=True, slots=True)
class BusyCost:
    """Cost of the busy time of one deployment on some of its devices."""

    nano_usd_per_hour: float
    provenance: Provenance
    assumptions: tuple[str, ...] = ()


def busy_cost(
    before: Fleet, held: DeploymentsByDevice, deployment: Deployment, device_ids: Sequence[int], context: Context
) -> BusyCost:
    """Return what a deployment's busy time costs on these of its devices, nano-USD per hour.

    Alone on a device, that is its busy share of the time. Where several deployments are busy for more than all the
    time together, they overlap: each then has its part of the whole, so that all of them never exceed the price.
    Raises NotMeasured without the busy time of one of them, NoPrice.
    """
    own = _busy(deployment, context)
    total, origins, notes = 0.0, [context.evidence(deployment.deployment_id).busy.provenance], []
    for device_id in device_ids:
        together = held.get(device_id, (deployment,))
        busy = sum(
            own if neighbour.deployment_id == deployment.deployment_id else _busy(neighbour, context)
            for neighbour in together
        )
        total += device_price(before, device_id, context) * own / max(1.0, busy)
        if len(together) > 1:
            origins += [context.evidence(neighbour.deployment_id).busy.provenance for neighbour in together]
            others = ", ".join(dict.fromkeys(neighbour.name for neighbour in together if neighbour is not deployment))
            notes.append(
                f"{own / max(1.0, busy):.0%} of the time of {before.device(device_id).name} is its share beside "
                f"{others}, by busy time; what the others ask for stays as it is"
            )
    return BusyCost(total, max(origins), tuple(dict.fromkeys(notes)))


def _busy(deployment: Deployment, context: Context) -> float:
    try:
        return min(1.0, max(0.0, context.evidence(deployment.deployment_id).busy.mean))
    except NotMeasured as missing:
        raise NotMeasured("busy", f"of {deployment.name}, which shares its devices: {missing.remedy}") from None
