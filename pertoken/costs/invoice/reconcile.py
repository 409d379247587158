"""A bill against the computed dollars, by host and day, with every difference named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pertoken.costs.bill import Bill, bill, midnights
from pertoken.costs.invoice.read import COVERED, DISCOUNT, NEGATION, USAGE, Invoice, InvoiceLine
from pertoken.costs.prices.book import BILLED, Price
from pertoken.store.connect.open import Store
from pertoken.units import HOUR_MS, apportion
from pertoken.window.reading import DAY, Window


@dataclass(slots=True)
class ComputedDay:
    """The devices of one host on one day."""

    nano_usd: int = 0
    """Of the device time that has a price."""
    device_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """How long each device that is paid for was recorded."""

    @property
    def hours(self) -> float:
        """Hours in which the host was recorded: those of its device that was there longest."""
        return max(self.device_ms.values(), default=0) / HOUR_MS


Computed = Mapping[tuple[int, int], ComputedDay]
"""By host id and number of the day since 1970."""


def paid_devices(window: Window) -> dict[int, tuple[int, ...]]:
    """Return the devices that an instance's price is spread over, by host: its accelerators, else its CPUs."""
    by_host: dict[int, list[int]] = defaultdict(list)
    devices = window.inventory.devices
    for device_id, row in devices.items():
        if row.parent_id is None:
            by_host[row.host_id].append(device_id)
    return {
        host: tuple(device_id for device_id in ids if devices[device_id].kind != "cpu") or tuple(ids)
        for host, ids in by_host.items()
    }


def computed_days(bill: Bill) -> dict[tuple[int, int], ComputedDay]:
    """Return the dollars and hours of each host and day of a bill."""
    owners = {device: host for host, ids in paid_devices(bill.window).items() for device in ids}
    days: dict[tuple[int, int], ComputedDay] = defaultdict(ComputedDay)
    for line in bill.device_costs(midnights(bill.window)):
        if line.device_id in owners:
            day = days[owners[line.device_id], line.start_ts // DAY]
            day.device_ms[line.device_id] += line.duration_ms
            day.nano_usd += line.nano_usd or 0
    return dict(days)


@dataclass(frozen=True, slots=True)
class Billed:
    """Billed amounts of one host on one day, in nano-USD."""

    nano_usd: int = 0
    """Of its instance-hours."""
    effective_nano_usd: int = 0
    """With its part of commitments."""
    list_nano_usd: int | None = None
    hours: float = 0.0
    beside_nano_usd: int = 0
    """Of other lines of the same resource, such as traffic and disks: no device-hours."""
    priced_hours: float = 0.0
    """Hours at the cost of their price; others cost nothing here, or are paid by a fee on another line."""
    priced_nano_usd: int = 0
    """Effective cost of these hours."""


@dataclass(frozen=True, slots=True)
class Row:
    """One host on one day. `billed = computed + unseen + discount + price`, exactly, in nano-USD."""

    host_id: int
    day: int
    """Number of the day since 1970, UTC."""
    billed: int
    """Of its instance-hours, with their part of commitments."""
    computed: int
    billed_hours: float
    recorded_hours: float
    unseen: int
    """Hours that are billed and were not recorded, at the billed price."""
    discount: int
    """Billed price below the list price, of the recorded hours: 0 or less; 0 where no list price is stated."""
    price: int
    """What is left: another price was computed with than the list price (or the billed one) of the recorded hours."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A bill compared with the computed dollars; its parts sum to it exactly."""

    total: int
    """The bill, nano-USD."""
    rows: tuple[Row, ...]
    instance_hours: int
    """Billed for instance-hours of hosts that were recorded, without commitments' parts."""
    beside: int
    """Billed for other lines of these hosts: traffic, disks."""
    unmatched: tuple[tuple[str, int, int], ...]
    """(kind, nano-USD, lines) of lines of no recorded host, largest first."""
    not_billed: int
    """Computed for hosts and days in the bill's time that have no line in it."""
    billed: Mapping[tuple[int, int], Billed]
    """By host id and day."""
    units: tuple[str, ...] = ()
    """Units of usage of recorded hosts that are no time."""

    @property
    def unpriced_hours(self) -> float:
        """Billed hours that give no price."""
        return sum(billed.hours - billed.priced_hours for billed in self.billed.values())


def reconcile(
    invoice: Invoice, hosts: Mapping[str, int], computed: Computed, devices: Mapping[int, int] | None = None
) -> Reconciliation:
    """Compare a bill with the computed dollars.

    `hosts`: host ids by what a bill may call them, in lower case (see `matched`). `devices`: number of devices by host
    id, for amounts in device-hours.
    """
    units: dict[str, None] = {}
    billed: dict[tuple[int, int], list[_Part]] = defaultdict(list)
    unmatched: dict[str, list[int]] = defaultdict(list)
    for line in invoice.lines:
        names = (line.resource, *line.other_names)
        host_id = next((host_match for name in names if (host_match := matched(name, hosts)) is not None), None)
        if host_id is None:
            unmatched[line.kind if line.kind != USAGE else "other resources"].append(line.nano_usd)
            continue
        if line.kind in (USAGE, COVERED) and line.hours is None:
            units[line.unit or "none"] = None
        for day, part in _by_day(line):
            billed[host_id, day].append(part)
    summed = {key: _billed(parts, (devices or {}).get(key[0], 1)) for key, parts in billed.items()}
    rows = tuple(
        _row(host_id, day, billed, computed.get((host_id, day), ComputedDay()))
        for (host_id, day), billed in sorted(summed.items())
        if billed.hours or billed.nano_usd or billed.effective_nano_usd
    )
    first, last = invoice.interval
    return Reconciliation(
        total=invoice.nano_usd,
        rows=rows,
        instance_hours=sum(billed.nano_usd for billed in summed.values()),
        beside=sum(billed.beside_nano_usd for billed in summed.values()),
        unmatched=tuple(
            sorted(((kind, sum(nano), len(nano)) for kind, nano in unmatched.items()), key=lambda row: -abs(row[1]))
        ),
        not_billed=sum(
            computed_day.nano_usd
            for (host_id, day), computed_day in computed.items()
            if first <= day * DAY < last and (host_id, day) not in summed
        ),
        billed=summed,
        units=tuple(units),
    )


def matched(resource: str, hosts: Mapping[str, int]) -> int | None:
    """Return the host of a line: one whose name or stated `resource_id` is the resource, or the end of its path."""
    name = resource.strip().casefold()
    return hosts.get(name) if name in hosts else hosts.get(name.rstrip("/").rpartition("/")[2])


def names_of(hosts: Iterable[tuple[int, str]], stated: Mapping[str, str]) -> dict[str, int]:
    """Return host ids by what a bill may call them: their name, its first label, and the resource id that is stated.

    `hosts`: (id, name); `stated`: resource ids by host name. A name that two hosts have matches neither.
    """
    hosts_by_name: dict[str, set[int]] = defaultdict(set)
    for host_id, name in hosts:
        for alias in {name, name.partition(".")[0], stated.get(name, name)}:
            hosts_by_name[alias.casefold()].add(host_id)
    return {name: next(iter(ids)) for name, ids in hosts_by_name.items() if len(ids) == 1 and name}


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a line that falls on one day; the parts of a line sum to it."""

    line: InvoiceLine
    nano_usd: int
    effective_nano_usd: int
    list_nano_usd: int | None
    share: float
    """Of the line's time."""


def _by_day(line: InvoiceLine) -> list[tuple[int, _Part]]:
    """Return each day of the calendar that a line touches with its part of the line, by time."""
    days = range(line.start_ts // DAY, -(-line.end_ts // DAY))
    seconds = [min(line.end_ts, (day + 1) * DAY) - max(line.start_ts, day * DAY) for day in days]
    billed, effective = apportion(line.nano_usd, seconds), apportion(line.effective_nano_usd, seconds)
    listed = None if line.list_nano_usd is None else apportion(line.list_nano_usd, seconds)
    return [
        (
            day,
            _Part(
                line,
                billed[n],
                effective[n],
                None if listed is None else listed[n],
                seconds[n] / (line.end_ts - line.start_ts),
            ),
        )
        for n, day in enumerate(days)
    ]


def _billed(parts: Sequence[_Part], devices: int) -> Billed:
    """Add up the lines of one host on one day; `devices`: their number on it.

    Several lines of one interval, such as an instance's cores, memory and accelerators, are one use of it.
    """
    nano = effective = listed = beside = 0
    has_list = True
    hours: dict[tuple[int, int], float] = defaultdict(float)
    costs: dict[tuple[int, int], int] = defaultdict(int)
    paid_elsewhere = set()
    discounts = 0
    for part in parts:
        line = part.line
        if line.kind in (USAGE, COVERED) and line.hours is not None:
            effective += part.effective_nano_usd
            has_list = has_list and part.list_nano_usd is not None
            listed += part.list_nano_usd or 0
            interval = line.start_ts, line.end_ts
            hours[interval] = max(hours[interval], line.hours * part.share / (devices if line.per_device else 1))
            costs[interval] += part.effective_nano_usd
            if line.paid_elsewhere:
                paid_elsewhere.add(interval)
        elif line.kind == DISCOUNT:
            effective += part.effective_nano_usd
            discounts += part.effective_nano_usd
        elif line.kind != NEGATION:  # of covered usage, whose effective cost stands for it
            beside += part.nano_usd
            continue
        nano += part.nano_usd
    priced = [interval for interval, cost in costs.items() if cost > 0 and interval not in paid_elsewhere]
    return Billed(
        nano,
        effective,
        listed if has_list and hours else None,
        sum(hours.values()),
        beside,
        sum(hours[interval] for interval in priced),
        sum(costs[interval] for interval in priced) + discounts if priced else 0,
    )


def _row(host_id: int, day: int, billed: Billed, computed: ComputedDay) -> Row:
    """Name the difference of one host and day."""
    cost, hours = billed.effective_nano_usd, billed.hours
    share = min(1.0, computed.hours / hours) if hours else 0.0
    recorded = round(cost * share) if computed.hours <= hours else cost
    unseen = cost - recorded
    discount = 0
    if billed.list_nano_usd is not None:
        discount = min(0, recorded - round(billed.list_nano_usd * share))
    return Row(
        host_id,
        day,
        cost,
        computed.nano_usd,
        hours,
        computed.hours,
        unseen,
        discount,
        cost - computed.nano_usd - unseen - discount,
    )


SAME = 1e-4
"""Difference of two days' prices, relative, up to which they are one: exports round their amounts."""
MIN_HOURS = 0.5
"""Hours of a day from which its price is taken: of fewer the roundings of a bill would be the price."""


@dataclass(frozen=True, slots=True)
class HostDevices:
    """Devices of a host among which its price is divided."""

    name: str
    uuids: tuple[str, ...]


def billed_prices(
    reconciliation: Reconciliation, hosts: Mapping[int, HostDevices], source: str, set_ts: int
) -> tuple[Price, ...]:
    """Return a price for each device of each billed host, in force from the first day of each billed rate.

    It is the cost of the host's instance-hours, with their part of commitments, over these hours and its devices. Hours
    at $0 or that a fee on another line pays for give no price: a capacity block, credits, a commitment without its
    part. The last one stays in force after the bill, until the next.
    """
    prices: list[Price] = []
    for host_id, host in sorted(hosts.items()):
        for day, nano_usd_per_hour in _rates(reconciliation, host_id):
            per_device = round(nano_usd_per_hour / len(host.uuids))
            note = f"{source}, {host.name}"
            prices += [
                Price(uuid, per_device, from_ts=day * DAY, set_ts=set_ts, set_by=BILLED, note=note)
                for uuid in host.uuids
            ]
    return tuple(prices)


def _rates(reconciliation: Reconciliation, host_id: int) -> Sequence[tuple[int, float]]:
    """Return (day, nano-USD of an hour of the host) of the days on which its billed price changed."""
    rates: list[tuple[int, float]] = []
    for (host, day), billed in sorted(reconciliation.billed.items()):
        if host != host_id or billed.priced_hours < MIN_HOURS or billed.priced_nano_usd <= 0:
            continue
        rate = billed.priced_nano_usd / billed.priced_hours
        if not rates or abs(rate - rates[-1][1]) > SAME * rates[-1][1]:
            rates.append((day, rate))
    return rates


@dataclass(frozen=True, slots=True)
class Compared:
    """A reconciliation with its hosts."""

    reconciliation: Reconciliation
    hosts: Mapping[int, HostDevices]

    def prices(self, source: str, set_ts: int) -> tuple[Price, ...]:
        """Return the billed price of each device, from when on."""
        return billed_prices(self.reconciliation, self.hosts, source, set_ts)


def compared(store: Store, invoice: Invoice, stated: Mapping[str, str], now_ts: int) -> Compared:
    """Compare a bill with its days in a database. `stated`: resource ids by host name. Raises StoreError."""
    first, last = invoice.interval
    with bill(store, first // DAY * DAY, min(now_ts, -(-last // DAY) * DAY)) as priced:
        window, devices = priced.window, priced.inventory.devices
        computed = computed_days(priced) if window.start < window.end else {}
    hosts = {
        host_id: HostDevices(devices[ids[0]].host_name, tuple(devices[device_id].uuid for device_id in ids))
        for host_id, ids in paid_devices(window).items()
    }
    names = names_of(((host_id, host.name) for host_id, host in hosts.items()), stated)
    counts = {host_id: len(host.uuids) for host_id, host in hosts.items()}
    return Compared(reconcile(invoice, names, computed, counts), hosts)
