"""Bill of a window: the cost of each device in each bucket, and its allocation to epochs."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pertoken.costs.ledger import Allocation, BillTotal, DeviceTime, Share, allocate
from pertoken.costs.prices.book import PriceBook, Priced
from pertoken.window.totals import HeldTime

_NO_SHARES: Mapping[int, tuple[int, int]] = {}


@dataclass(slots=True)
class Money:
    """Dollars summed over buckets."""

    paid: int = 0
    busy: int = 0
    idle: int = 0
    other: int = 0
    unallocated: int = 0
    by_epoch: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    idle_by_epoch: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Of `by_epoch`, what was paid for while the epoch held a device and was idle."""
    by_device: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """What each device cost, whoever held it."""
    unpriced_devices: set[int] = field(default_factory=set)
    unpriced_epochs: set[int] = field(default_factory=set)
    priced_devices: set[int] = field(default_factory=set)
    """Devices that had a price in some of the time."""
    observed_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Of each device that is paid for."""
    by_devices: list[list[tuple[Allocation, Sequence[int]]]] = field(default_factory=list)
    """For each time with constant prices: cost of each of several devices with equal use."""
    _parts_of: dict[int, list[tuple[int, int, int, int, int]]] | None = None
    """By device, from `by_devices`: paid, busy, idle, other and unallocated of each stretch."""
    estimated: bool = False
    """Whether hours without minutes were divided by time at a change of price."""
    busy_is_bound: bool = False

    def add(self, part: Allocation, devices: int, bounds: Collection[int]) -> None:
        """Add what each of `devices` cost; `bounds` are the epochs whose busy time is an upper bound."""
        self.busy_is_bound |= any(nano and epoch in bounds for epoch, nano in part.busy.items())
        self.paid += part.paid * devices
        self.busy += sum(part.busy.values()) * devices
        self.idle += sum(part.idle.values()) * devices
        self.other += part.other * devices
        self.unallocated += part.unallocated * devices
        for epoch, nano in [*part.busy.items(), *part.idle.items()]:
            self.by_epoch[epoch] += nano * devices
        for epoch, nano in part.idle.items():
            self.idle_by_epoch[epoch] += nano * devices

    def bill_of(self, device_ids: Collection[int]) -> BillTotal | None:
        """Return the bill of some devices; None unless one of them had a price."""
        if self.priced_devices.isdisjoint(device_ids):
            return None
        if self._parts_of is None:  # looked up once for all hosts of a fleet
            self._parts_of = defaultdict(list)
            for part, devices in chain.from_iterable(self.by_devices):
                parts = part.paid, sum(part.busy.values()), sum(part.idle.values()), part.other, part.unallocated
                for device in devices:
                    self._parts_of[device].append(parts)
        own = [parts for device_id in device_ids for parts in self._parts_of.get(device_id, ())]
        paid, busy, idle, other, unallocated = (sum(column) for column in zip(*own, strict=True)) if own else [0] * 5
        return BillTotal(paid, busy, idle, other, unallocated, self.busy_is_bound)

    def bill(self) -> BillTotal | None:
        """Return the sums; None where no device had a price."""
        parts = self.busy, self.idle, self.other, self.unallocated
        return BillTotal(self.paid, *parts, self.busy_is_bound) if self.priced_devices else None


def allocations(held_times: Iterable[HeldTime], devices: Mapping[int, Priced], prices: PriceBook) -> Money:
    """Return the bill of all devices over times with constant prices, and what of it each epoch carries.

    Each time is one bill for each device: its buckets were added up before they are priced.
    """
    money = Money()
    previous_start: int | None = None
    for held_time in held_times:
        money.by_devices.append([])
        if held_time.divides_hour and held_time.times:
            money.estimated |= previous_start is None or _repriced(
                devices.values(), prices, previous_start, held_time.start
            )
        previous_start = held_time.start
        alike: dict[tuple[int, int, tuple[Any, ...]], list[int]] = {}  # as the GPUs of one deployment are
        # A MIG device is paid for with its GPU.
        paid = [row for row in held_time.times if row[0] in devices and devices[row[0]].parent_id is None]
        rates = prices.rates((devices[device_id] for device_id, _, _ in paid), held_time.start)
        for (device_id, duration_ms, observed_ms), per_hour in zip(paid, rates, strict=True):
            by_epoch = held_time.shares.get(device_id, _NO_SHARES)
            money.observed_ms[device_id] += observed_ms
            if per_hour is None:
                money.unpriced_devices.add(device_id)
                money.unpriced_epochs.update(by_epoch)
            else:
                money.priced_devices.add(device_id)
                alike.setdefault((per_hour, duration_ms, tuple(by_epoch.items())), []).append(device_id)
        for (nano_usd_per_hour, duration_ms, shares), device_ids in alike.items():
            time = DeviceTime(duration_ms, tuple(Share(epoch_id, *ns) for epoch_id, ns in sorted(shares)))
            part = allocate(time, nano_usd_per_hour)
            money.add(part, len(device_ids), held_time.bounds)
            money.by_devices[-1].append((part, device_ids))
            for device_id in device_ids:
                money.by_device[device_id] += part.paid
    return money


def _repriced(devices: Iterable[Priced], prices: PriceBook, before_ts: int, after_ts: int) -> bool:
    """Return whether a device that is paid for has another price at the second instant."""
    payers = [device for device in devices if device.parent_id is None]
    return prices.rates(payers, before_ts) != prices.rates(payers, after_ts)
