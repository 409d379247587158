"""Allocation of each device-hour: the identity of the bill, exact in integer nano-dollars.

For every device and all its time at one price:
paid = sum over deployments of (busy + idle-while-reserved) + other + unallocated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pertoken.store.schema.shared import OTHER
from pertoken.units import HOUR_MS, apportion

_NS_PER_MS = 1_000_000


class Share(NamedTuple):
    """Time in which an epoch held a device (nanoseconds of the whole device), and its busy part."""

    epoch_id: int
    """`OTHER` is foreign work."""
    held_ns: int
    busy_ns: int


class DeviceTime(NamedTuple):
    """One device over some time: how long it was there, and who held it. Devices that did the same are equal."""

    duration_ms: int
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """The dollars of one device over some time, nano-USD."""

    paid: int
    busy: Mapping[int, int]
    idle: Mapping[int, int]
    other: int
    unallocated: int


@dataclass(frozen=True, slots=True)
class BillTotal:
    """Dollars of one window in nano-USD; `paid = busy + idle + other + unallocated`, exactly.

    `idle` is reserved but idle time of deployments, `other` foreign work on priced devices, `unallocated` time in
    which nothing held a priced device.
    """

    paid: int
    busy: int
    idle: int
    other: int
    unallocated: int
    busy_is_bound: bool = False
    """Whether `busy` is an upper bound, and so `idle` a lower one."""


def allocate(time: DeviceTime, nano_usd_per_hour: int) -> Allocation:
    """Split the cost of a device among the epochs that held it. Parts are integers that sum exactly to `paid`."""
    paid = cost(time.duration_ms, nano_usd_per_hour)
    epochs = [share.epoch_id for share in time.shares if share.epoch_id != OTHER]
    busy = [min(share.busy_ns, share.held_ns) for share in time.shares if share.epoch_id != OTHER]
    held = [share.held_ns for share in time.shares if share.epoch_id != OTHER]
    idle = [whole - used for whole, used in zip(held, busy, strict=True)]
    other = sum(share.held_ns for share in time.shares if share.epoch_id == OTHER)
    free = max(0, time.duration_ms * _NS_PER_MS - sum(held) - other)
    parts = apportion(paid, [*busy, *idle, other, free])
    n = len(epochs)
    return Allocation(
        paid=paid,
        busy=dict(zip(epochs, parts[:n], strict=True)),
        idle=dict(zip(epochs, parts[n : 2 * n], strict=True)),
        other=parts[-2],
        unallocated=parts[-1],
    )


def cost(duration_ms: int, nano_usd_per_hour: int) -> int:
    """Return the cost of a device over some time, rounded to the nano-dollar."""
    return divide(duration_ms * nano_usd_per_hour, HOUR_MS)


def divide(numerator: int, denominator: int) -> int:
    """Integer quotient rounded to nearest, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)
