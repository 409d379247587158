"""Checks for rules about the electricity of devices: who pays for it, and whether the devices are exclusive."""

from pertoken.rule import Accelerator, Deployment, Fleet, Market, Skip, skip

ADJUSTABLE = ("nvidia", "amd")
"""Vendors with a tool that sets clocks and power limits: nvidia-smi, rocm-smi."""


def owned_devices(now: Deployment, fleet: Fleet, market: Market) -> Accelerator | Skip:
    """Return the accelerator of a deployment with whole, owned, exclusive devices; else a refusal."""
    purchase = now.placement.purchase
    device = market.accelerator(now.accelerator)
    if device is None:
        return skip(
            "device-unknown", f"{now.accelerator or 'its device'} is not in the catalog: its limits are not known"
        )
    if purchase is None:
        return skip(
            "purchase-unknown", "whether its devices are owned or rented is not known: set `purchase` of its hosts"
        )
    if purchase != "owned":
        paid = purchase.replace("_", "-")
        return skip("rented", f"its devices are rented ({paid}): the price includes their electricity, so it saves $0")
    if device.vendor not in ADJUSTABLE:
        return skip("vendor-cannot", f"no known tool sets clocks and power limits of {device.name}")
    if not now.device_ids or device.tdp_w is None:
        return skip(
            "limit-unknown", f"its devices were not observed, or the catalog has no power limit of {device.name}"
        )
    whole = {
        device.device_id: {device.device_id, *(part.partition_id for part in device.partitions)}
        for device in fleet.devices
    }
    if not set(now.device_ids) <= set(whole):
        return skip(
            "part-of-device", "it runs on a partition of a device: clocks and power limits apply to the whole device"
        )
    ids = {whole_id for device_id in now.device_ids for whole_id in whole[device_id]}
    sharing = [
        deployment.name
        for deployment in fleet.deployments
        if deployment.deployment_id != now.deployment_id and ids & set(deployment.device_ids)
    ]
    if sharing:
        return skip(
            "shared-device",
            f"its devices also serve {', '.join(sharing)}: clocks and power limits apply to all of them",
        )
    return device
