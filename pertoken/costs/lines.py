"""The bill by bucket of time: allocated lines, which sum to it exactly for each device and each of its owners.

`money` computes dollars over all the time at one price; here each amount is spread over the buckets of that time, in
proportion to the nanoseconds it was paid for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from pertoken.costs.ledger import Allocation, BillTotal, DeviceTime, Share, allocate
from pertoken.costs.prices.book import PaidDevice, PriceBook
from pertoken.store.schema.domains import MAX_DURATION_MS
from pertoken.store.schema.shared import OTHER
from pertoken.units import SHARE
from pertoken.window.columns import NULL, Columns, Ints
from pertoken.window.inventory import Inventory
from pertoken.window.reading import ServedBuckets, Window
from pertoken.window.totals import HeldTime

_NO_SHARES: Mapping[int, tuple[int, int]] = {}
_HeldShares = tuple[tuple[int, tuple[int, int]], ...]
"""Epochs that held a device, each with its held and busy nanoseconds."""


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
    """Part of `by_epoch` that was paid while the epoch held a device and was idle."""
    by_device: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Cost of each device, whoever held it."""
    unpriced_devices: set[int] = field(default_factory=set)
    unpriced_epochs: set[int] = field(default_factory=set)
    priced_devices: set[int] = field(default_factory=set)
    """Devices that had a price in some of the time."""
    observed_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Of each device that is paid for."""
    by_devices: list[list[tuple[Allocation, Sequence[int]]]] = field(default_factory=list)
    """For each time with constant prices: cost of each of several devices with equal use."""
    _parts_of: dict[int, list[tuple[int, int, int, int, int]]] | None = None
    """By device, from `by_devices`: paid, busy, idle, other and unallocated of each interval."""
    estimated: bool = False
    """Whether hours without minutes were divided by time at a change of price."""
    busy_is_bound: bool = False

    def add(self, part: Allocation, devices: int, bounds: Collection[int]) -> None:
        """Add the cost of each of `devices`; `bounds` are epochs with an upper bound of busy time."""
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
        device_parts = [parts for device_id in device_ids for parts in self._parts_of.get(device_id, ())]
        paid, busy, idle, other, unallocated = (
            (sum(column) for column in zip(*device_parts, strict=True)) if device_parts else [0] * 5
        )
        return BillTotal(paid, busy, idle, other, unallocated, self.busy_is_bound)

    def bill(self) -> BillTotal | None:
        """Return the sums; None where no device had a price."""
        parts = self.busy, self.idle, self.other, self.unallocated
        return BillTotal(self.paid, *parts, self.busy_is_bound) if self.priced_devices else None


def allocations(held_times: Iterable[HeldTime], devices: Mapping[int, PaidDevice], prices: PriceBook) -> Money:
    """Return the bill of all devices over times with constant prices, and the part of each epoch.

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
        alike: dict[tuple[int, int, _HeldShares], list[int]] = {}  # as the GPUs of one deployment are
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


def _repriced(devices: Iterable[PaidDevice], prices: PriceBook, before_ts: int, after_ts: int) -> bool:
    """Return whether a device that is paid for has another price at the second instant."""
    payers = [device for device in devices if device.parent_id is None]
    return prices.rates(payers, before_ts) != prices.rates(payers, after_ts)


DeviceCosts = Sequence[tuple[Allocation, Sequence[int]]]
"""Cost of each of several devices over the same time."""
BUSY, IDLE, OTHER_WORK, UNALLOCATED = USES = ("busy", "idle", "other", "unallocated")


class AllocatedLine(NamedTuple):
    """Cost of one device in one bucket of time, allocated to one owner."""

    start_ts: int
    """First instant of the bucket within the window."""
    end_ts: int
    device_id: int
    use: str
    """One of `USES`."""
    epoch_id: int | None
    """Owner; only for `BUSY` and `IDLE`."""
    nano_usd: int


@dataclass(frozen=True, slots=True, eq=False)
class OwnedCosts:
    """Cost of each device in each bucket in which an epoch, or foreign work, held it."""

    device_id: Ints
    epoch_id: Ints
    """`OTHER`: foreign work."""
    bucket: Ints
    """Start of the bucket, in buckets since 1970."""
    held_ns: Ints
    nano_usd: Ints
    """`NULL`: the device has no price then."""
    busy_nano_usd: Ints


class BilledBuckets:
    """The bill of a window by bucket of time. Parts of it are between two changes of prices each."""

    def __init__(self, window: Window, prices: PriceBook, bucket_s: int) -> None:
        """`bucket_s`: whole hours, as older minutes are deleted."""
        self.window, self.bucket_s, self._cuts = window, bucket_s, prices.changes()
        self.parts: Sequence[ServedBuckets] = tuple(window.served(self._cuts))
        devices = window.inventory.devices
        held = [_held_rows(part, window.inventory, bucket_s) for part in self.parts]
        times = (_held_time(part, rows) for part, rows in zip(self.parts, held, strict=True))
        self.money = allocations(times, devices, prices)
        """The same dollars, not divided by bucket."""
        self.owned = tuple(map(_owned_costs, held, self.money.by_devices))
        """Of each part."""

    @cached_property
    def device_buckets(self) -> Sequence[Columns]:
        """Time of each device in each part."""
        return tuple(self.window.device_buckets(self._cuts))

    def lines(self) -> Iterator[AllocatedLine]:
        """Yield each line of some dollars; time of devices without a price has none."""
        nano_usd_by_line: Counter[tuple[int, int, str, int | None]] = Counter()
        for owned, present, costs in zip(self.owned, self.device_buckets, self.money.by_devices, strict=True):
            free = _free_costs(owned, present, self.bucket_s, costs)
            for use, table, nano_usd in (
                (BUSY, owned, owned.busy_nano_usd),
                (IDLE, owned, owned.nano_usd - owned.busy_nano_usd),
                (UNALLOCATED, free, free.nano_usd),
            ):
                is_paid = (table.nano_usd != NULL) & (nano_usd != 0)
                columns = (
                    column[is_paid].tolist() for column in (table.bucket, table.device_id, table.epoch_id, nano_usd)
                )
                for bucket, device_id, epoch_id, nano in zip(*columns, strict=True):
                    foreign = use == IDLE and epoch_id == OTHER
                    key = bucket, device_id, OTHER_WORK if foreign else use, None if epoch_id == OTHER else epoch_id
                    nano_usd_by_line[key] += nano  # a bucket may have several prices
        for (bucket, device_id, use, owner), nano in nano_usd_by_line.items():
            begin_ts, until_ts = bucket * self.bucket_s, (bucket + 1) * self.bucket_s
            start_ts, end_ts = max(self.window.start, begin_ts), min(self.window.end, until_ts)
            yield AllocatedLine(start_ts, end_ts, device_id, use, owner, nano)


class _HeldRows(NamedTuple):
    """Time in which an epoch held a device, by device, epoch and bucket, in this order."""

    device_id: Ints
    epoch_id: Ints
    bucket: Ints
    held_ns: Ints
    busy_ns: Ints

    @property
    def begins(self) -> Ints:
        """Index of the first row of each pair of device and epoch."""
        return _starts(self.device_id, self.epoch_id)


def _held_rows(part: ServedBuckets, inventory: Inventory, bucket_s: int) -> _HeldRows:
    """Return the sums of the rows of all devices."""
    served = part.served.where(part.served.ints("whole_ms") != NULL)
    epochs, number = np.unique(served.ints("epoch_id"), return_inverse=True)
    payers = {device_id for device_id, row in inventory.devices.items() if row.parent_id is None}
    devices = [payers.intersection(inventory.own_devices.get(epoch_id, ())) for epoch_id in epochs.tolist()]
    counts = np.array([len(device_ids) for device_ids in devices], np.int64)
    device_ids = np.array([device_id for ids in devices for device_id in ids], np.int64)
    copies = counts[number]
    row = np.arange(len(served)).repeat(copies)
    nth_device = np.arange(len(row)) - (np.cumsum(copies) - copies).repeat(copies)
    columns = [
        device_ids[(np.cumsum(counts) - counts)[number][row] + nth_device],
        *(served.ints(name)[row] for name in ("epoch_id", "ts")),
        *(_possible(served.ints(name), MAX_DURATION_MS)[row] * SHARE for name in ("whole_ms", "whole_busy_ms")),
    ]
    if len(part.shared):
        paid = part.shared.where(np.isin(part.shared.ints("device_id"), list(payers)))
        times = (_possible(paid.ints(name), MAX_DURATION_MS * SHARE) for name in ("held_ns", "busy_ns"))
        shared = (*(paid.ints(name) for name in ("device_id", "epoch_id", "ts")), *times)
        columns = [np.concatenate(pair) for pair in zip(columns, shared, strict=True)]
    if part.worker_busy:  # a worker rank is busy while its head rank is, whatever its own rows report
        workers = [(*rank[:3], 0, rank.busy_ns) for rank in part.worker_busy if rank.device_id in payers]
        busy_rows = np.array(workers, np.int64).reshape(-1, 5).T
        columns[4] = np.where(np.isin(columns[1], busy_rows[1]), 0, columns[4])
        columns = [np.concatenate(pair) for pair in zip(columns, busy_rows, strict=True)]
    has_row = np.isin(columns[1], list(inventory.head_rows))
    columns[1] = np.where(has_row, columns[1], OTHER)
    columns[2] //= bucket_s
    order = np.lexsort((columns[2], columns[1], columns[0]))
    columns = [column[order] for column in columns]
    first = _starts(*columns[:3])
    return _HeldRows(*(column[first] for column in columns[:3]), *(_sums(column, first) for column in columns[3:]))


def _possible(times: Ints, longest: int) -> Ints:
    """Return times of rows within what a row can cover: impossible ones of a local database would leave 64 bits."""
    return np.asarray(np.clip(times, 0, longest), np.int64)


def _held_time(part: ServedBuckets, rows: _HeldRows) -> HeldTime:
    """Return the same time without buckets."""
    shares: dict[int, dict[int, tuple[int, int]]] = {}
    begins = rows.begins
    keys = rows.device_id[begins].tolist(), rows.epoch_id[begins].tolist()
    sums = _sums(rows.held_ns, begins).tolist(), _sums(rows.busy_ns, begins).tolist()
    for device_id, epoch_id, held_ns, busy_ns in zip(*keys, *sums, strict=True):
        shares.setdefault(device_id, {})[epoch_id] = held_ns, busy_ns
    return HeldTime(part.start, part.divides_hour, part.device_time, shares, ())


def _owned_costs(rows: _HeldRows, costs: DeviceCosts) -> OwnedCosts:
    """Spread the cost of each pair of device and epoch over its buckets."""
    begins = rows.begins
    busy, idle = (np.full(len(begins), NULL, np.int64) for _ in range(2))
    keys = rows.device_id[begins].tolist(), rows.epoch_id[begins].tolist()
    index = {pair: n for n, pair in enumerate(zip(*keys, strict=True))}
    for allocation, device_ids in costs:
        for device_id in device_ids:
            for epoch_id, busy_nano_usd in allocation.busy.items():
                pair = index[device_id, epoch_id]
                busy[pair], idle[pair] = busy_nano_usd, allocation.idle[epoch_id]
            foreign = index.get((device_id, OTHER))
            if foreign is not None:
                busy[foreign], idle[foreign] = 0, allocation.other
    unpriced = busy == NULL
    busy, idle = np.where(unpriced, 0, busy), np.where(unpriced, 0, idle)
    group = np.arange(len(begins)).repeat(np.diff(np.append(begins, len(rows.bucket))))
    together = _running_cost(busy + idle, rows.held_ns, begins, group)
    own_busy = _running_cost(busy, np.minimum(rows.busy_ns, rows.held_ns), begins, group)
    # Both are rounded, so that idle dollars could shrink from one bucket to the next: they keep their maximum so far.
    # Groups follow one another without overlap, as each is offset by the idle dollars of those before.
    offset = (np.cumsum(idle) - idle)[group]
    own_idle = np.minimum(idle[group], np.maximum(0, together - own_busy)) + offset
    own_idle = np.maximum.accumulate(own_idle) - offset if len(group) else own_idle
    nano_usd, idle_nano_usd = _increases(together, begins), _increases(own_idle, begins)
    priced = ~unpriced[group]
    return OwnedCosts(
        rows.device_id,
        rows.epoch_id,
        rows.bucket,
        rows.held_ns,
        np.where(priced, nano_usd, NULL),
        np.where(priced, nano_usd - idle_nano_usd, 0),
    )


def _free_costs(owned: OwnedCosts, present: Columns, bucket_s: int, costs: DeviceCosts) -> OwnedCosts:
    """Spread the cost of each device while nothing held it over the buckets of that time."""
    device_id = np.append(present.ints("device_id"), owned.device_id)
    bucket = np.append(present.ints("ts") // bucket_s, owned.bucket)
    free_ns = np.append(_possible(present.ints("duration_ms"), MAX_DURATION_MS) * SHARE, -owned.held_ns)
    order = np.lexsort((bucket, device_id))
    device_id, bucket, free_ns = device_id[order], bucket[order], free_ns[order]
    first = _starts(device_id, bucket)
    device_id, bucket, free_ns = device_id[first], bucket[first], np.maximum(0, _sums(free_ns, first))
    begins = _starts(device_id)
    unallocated = {device: allocation.unallocated for allocation, device_ids in costs for device in device_ids}
    amounts = np.array([unallocated.get(device, 0) for device in device_id[begins].tolist()], np.int64)
    group = np.arange(len(begins)).repeat(np.diff(np.append(begins, len(device_id))))
    nano_usd = _increases(_running_cost(amounts, free_ns, begins, group), begins)
    nothing = np.full(len(device_id), OTHER)
    return OwnedCosts(device_id, nothing, bucket, np.zeros_like(free_ns), nano_usd, np.zeros_like(nano_usd))


def _running_cost(amounts: Ints, weights: Ints, begins: Ints, group: Ints) -> Ints:
    """Return how much of its group's amount was paid for until the end of each row, rounded to the nano-dollar."""
    running = np.cumsum(weights)  # it may wrap around; differences of it do not
    running -= (running[begins] - weights[begins])[group]
    return share_of(amounts[group], running, np.maximum(1, _sums(weights, begins))[group])


def share_of(amounts: Ints, parts: Ints, wholes: Ints) -> Ints:
    """Return amount x part / whole of each row, rounded half up, for 0 <= part <= whole < 2**60 and amounts >= 0.

    The product is beyond 64 bits, and its quotient is not: the remainder of an approximate quotient is small, and so
    exact by arithmetic that wraps around.
    """
    quotients = (amounts * (parts / wholes)).astype(np.int64)
    remainders = amounts * parts - quotients * wholes
    quotients += remainders // wholes
    return np.asarray(quotients + (2 * (remainders % wholes) >= wholes), np.int64)


def _increases(running: Ints, begins: Ints) -> Ints:
    """Return the increase of each row over the row before of its group."""
    previous = np.append(0, running)[:-1]
    previous[begins] = 0
    return np.asarray(running - previous, np.int64)


def _starts(*keys: Ints) -> Ints:
    """Return the indices of rows in which one of the keys differs from the row before."""
    changes = np.ones(len(keys[0]), bool)
    changes[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.flatnonzero(changes)


def _sums(values: Ints, begins: Ints) -> Ints:
    """Return the sum of each group of rows."""
    return np.add.reduceat(values, begins) if len(begins) else values[:0]
