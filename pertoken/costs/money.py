"""The bill of a window: what every device cost in each of its buckets, and which epoch carries what of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy import Connection

from pertoken.costs import ranks
from pertoken.costs.ledger import Allocation, DeviceTime, Share, allocate
from pertoken.costs.lines import Bill
from pertoken.costs.prices import PriceBook, Priced
from pertoken.store import read, sums
from pertoken.store.segments import Segments


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
    priced: bool = False

    def add(self, part: Allocation, devices: int) -> None:
        """Take in what each of so many devices cost."""
        self.priced = True
        self.paid += part.paid * devices
        self.busy += sum(part.busy.values()) * devices
        self.idle += sum(part.idle.values()) * devices
        self.other += part.other * devices
        self.unallocated += part.unallocated * devices
        for epoch, nano in [*part.busy.items(), *part.idle.items()]:
            self.by_epoch[epoch] += nano * devices

    def bill(self) -> Bill | None:
        """The sums; None where no device had a price."""
        return Bill(self.paid, self.busy, self.idle, self.other, self.unallocated) if self.priced else None


@dataclass(frozen=True, slots=True)
class Held:
    """Who held what in one stretch of time, over which every device has one price."""

    start: int
    shares: read.Rows
    """Of `sums.share_time`."""
    times: read.Rows
    """Of `sums.device_time`."""
    following: Mapping[tuple[int, int], int]
    """(device_id, epoch_id) -> busy_ns of ranks that follow."""


def following(
    connection: Connection, stretch: Segments, led: Mapping[int, int], of_epoch: Mapping[int, int]
) -> Mapping[tuple[int, int], int]:
    """(device_id, epoch_id) -> busy_ns of ranks that follow, which are busy while their head is, bucket by bucket.

    `led`: epochs of ranks that follow -> the deployment that leads them; `of_epoch`: other epochs -> their deployment.
    """
    if not led:
        return {}
    leading = [epoch for epoch, deployment in of_epoch.items() if deployment in led.values()]
    found: dict[tuple[int, int], int] = defaultdict(int)
    for segment in stretch:
        heads = ranks.busy_shares(read.deployment_buckets(connection, segment, leading), of_epoch)
        for row in read.share_buckets(connection, segment, tuple(led)):
            found[row.device_id, row.epoch_id] += ranks.busy_ns(row, led, heads)
    return found


def held(
    connection: Connection, stretch: Segments, following: Mapping[tuple[int, int], int] = MappingProxyType({})
) -> Held:
    """Ask who held what in a stretch."""
    shares, times = sums.share_time(connection, stretch), sums.device_time(connection, stretch)
    return Held(stretch[0].start, shares, times, following)


def allocations(stretches: Iterable[Held], devices: Mapping[int, Priced], prices: PriceBook) -> Money:
    """The bill of all devices over some stretches, and what of it each epoch carries.

    Each stretch is one bill for each device: its buckets were added up before they are priced.
    """
    money = Money()
    for stretch in stretches:
        held: dict[int, list[Share]] = defaultdict(list)
        for device_id, epoch_id, held_ns, busy_ns in stretch.shares:
            held[device_id].append(Share(epoch_id, held_ns, stretch.following.get((device_id, epoch_id), busy_ns)))
        alike: Counter[tuple[DeviceTime, int]] = Counter()  # as the GPUs of one deployment are
        for device_id, duration_ms in stretch.times:
            device = devices.get(device_id)
            if device is None or device.parent_id is not None:
                continue  # a MIG device is paid for with its GPU
            price = prices.at(device, stretch.start)
            if price is None:
                money.unpriced_devices.add(device_id)
                money.unpriced_epochs.update(epoch_id for epoch_id, _, _ in held.get(device_id, ()))
                continue
            time = DeviceTime(duration_ms, tuple(sorted(held.get(device_id, ()))))
            alike[time, price.nano_usd_per_device_hour] += 1
        for (time, nano_usd_per_hour), n in alike.items():
            money.add(allocate(time, nano_usd_per_hour), n)
    return money
