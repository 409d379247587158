"""Instances are rented whole: how many devices are paid for so that replicas run elsewhere."""

import math

from pertoken.catalog.market import Market
from pertoken.state.placement import Placement


def rented_devices(there: Placement, replicas: int, devices: int, market: Market) -> int:
    """Return the devices that are paid for where `replicas` of `devices` each run, in whole instances.

    The instance is the placement's own, else of those its provider lists the one that needs the fewest devices in all.
    Where the provider is not known, or lists none, devices are taken to be rented one by one.
    """
    sizes = _sizes(there, market)
    if not sizes:
        return replicas * devices
    return min(_rented(size, replicas, devices) for size in sizes)


def _rented(size: int, replicas: int, devices: int) -> int:
    if size >= devices:
        return math.ceil(replicas / (size // devices)) * size
    return replicas * math.ceil(devices / size) * size


def _sizes(there: Placement, market: Market) -> set[int]:
    if there.devices_per_instance is not None:
        return {there.devices_per_instance}
    if there.provider is None or there.accelerator is None:
        return set()
    if there.instance_type is not None:
        listed = market.devices_per_instance(there.provider, there.instance_type)
        return {listed} if listed is not None else set()
    purchase = "spot" if there.purchase == "spot" else "on_demand"
    return {each.n_devices for each in market.offers(there.accelerator, purchase) if each.provider == there.provider}
