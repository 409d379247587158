"""Instances are rented whole: how many devices are paid for so that replicas run elsewhere."""

import math

from pertoken.catalog.market import Market
from pertoken.state.placement import Placement


def rented_devices(placement: Placement, replicas: int, devices: int, market: Market) -> int:
    """Return the devices that are paid for where `replicas` of `devices` each run, in whole instances.

    The instance is the placement's own, else of those its provider lists the one that needs the fewest devices in all.
    Where the provider is not known, or lists none, devices are taken to be rented one by one.
    """
    sizes = _sizes(placement, market)
    if not sizes:
        return replicas * devices
    return min(_rented(size, replicas, devices) for size in sizes)


def _rented(size: int, replicas: int, devices: int) -> int:
    if size >= devices:
        return math.ceil(replicas / (size // devices)) * size
    return replicas * math.ceil(devices / size) * size


def _sizes(placement: Placement, market: Market) -> set[int]:
    if placement.devices_per_instance is not None:
        return {placement.devices_per_instance}
    if placement.provider is None or placement.accelerator is None:
        return set()
    if placement.instance_type is not None:
        listed = market.devices_per_instance(placement.provider, placement.instance_type)
        return {listed} if listed is not None else set()
    purchase = "spot" if placement.purchase == "spot" else "on_demand"
    return {
        offer.n_devices
        for offer in market.offers(placement.accelerator, purchase)
        if offer.provider == placement.provider
    }
