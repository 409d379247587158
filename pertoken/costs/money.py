"""The bill of a window: what every device cost in each of its buckets, and which epoch carries what of it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pertoken.costs.ledger import Allocation, Bill, DeviceTime, Share, allocate
from pertoken.costs.prices.book import PriceBook, Priced
from pertoken.window.totals import Stretch

_NOBODY: Mapping[int, tuple[int, int]] = {}


@dataclass(slots=True)
class Money:
    """Dollars summed over buckets."""

    paid: int = 0
    busy: int = 0
    idle: int = 0
    other: int = 0
    unallocated: int = 0
    by_epoch: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    unpriced_devices: set[int] = field(default_factory=set)
    unpriced_epochs: set[int] = field(default_factory=set)
    priced_devices: set[int] = field(default_factory=set)
    """Devices that had a price in some of the time."""
    observed_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Of each device that is paid for."""
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

    def bill(self) -> Bill | None:
        """The sums; None where no device had a price."""
        parts = self.busy, self.idle, self.other, self.unallocated
        return Bill(self.paid, *parts, self.busy_is_bound) if self.priced_devices else None


def allocations(
    stretches: Iterable[Stretch],
    devices: Mapping[int, Priced],
    devices_of: Mapping[int, Sequence[int]],
    prices: PriceBook,
) -> Money:
    """The bill of all devices over some stretches, and what of it each epoch carries; `devices_of` each epoch.

    Each stretch is one bill for each device: its buckets were added up before they are priced.
    """
    money = Money()
    for n, each in enumerate(stretches):
        if each.divides_hour and each.times:
            money.estimated |= n == 0 or _repriced(devices.values(), prices, each.start)
        holders = each.held(devices_of)
        bounds = each.bounds()
        for (device_id, epoch_id), (busy_ns, _) in each.following.items():
            if epoch_id in holders.get(device_id, ()):
                holders[device_id][epoch_id] = holders[device_id][epoch_id][0], busy_ns
        alike: Counter[tuple[int, int, tuple[Any, ...]]] = Counter()  # as the GPUs of one deployment are
        for device_id, duration_ms, observed_ms in each.times:
            device = devices.get(device_id)
            if device is None or device.parent_id is not None:
                continue  # a MIG device is paid for with its GPU
            by = holders.get(device_id, _NOBODY)
            money.observed_ms[device_id] += observed_ms
            per_hour = prices.rate(device, each.start)
            if per_hour is None:
                money.unpriced_devices.add(device_id)
                money.unpriced_epochs.update(by)
            else:
                money.priced_devices.add(device_id)
                alike[per_hour, duration_ms, tuple(by.items())] += 1
        for (nano_usd_per_hour, duration_ms, shares), n in alike.items():
            time = DeviceTime(duration_ms, tuple(Share(epoch_id, *ns) for epoch_id, ns in sorted(shares)))
            money.add(allocate(time, nano_usd_per_hour), n, bounds)
    return money


def _repriced(devices: Iterable[Priced], prices: PriceBook, ts: int) -> bool:
    """Whether the price of a device that is paid for changes at `ts`."""
    payers = (each for each in devices if each.parent_id is None)
    return any(prices.rate(each, ts - 1) != prices.rate(each, ts) for each in payers)
