"""A bill against what was computed, by host and day, with every difference named."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pertoken.costs.invoice.computed import Computed, ComputedDay
from pertoken.costs.invoice.read import COVERED, DISCOUNT, NEGATION, USAGE, Invoice, InvoiceLine
from pertoken.units import apportion
from pertoken.window.reading import DAY


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
    """Hours whose cost is their price; others cost nothing here, or are paid by a fee on another line."""
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
    """Units of usage of recorded hosts whose amount is no time."""

    @property
    def unpriced_hours(self) -> float:
        """Billed hours that give no price."""
        return sum(billed.hours - billed.priced_hours for billed in self.billed.values())


def reconcile(
    invoice: Invoice, hosts: Mapping[str, int], computed: Computed, devices: Mapping[int, int] | None = None
) -> Reconciliation:
    """Compare a bill with what was computed.

    `hosts`: host ids by what a bill may call them, in lower case (see `matched`). `devices`: number of devices by host
    id, for amounts in device-hours.
    """
    units: dict[str, None] = {}
    billed: dict[tuple[int, int], list[_Part]] = defaultdict(list)
    unmatched: dict[str, list[int]] = defaultdict(list)
    for line in invoice.lines:
        names = (line.resource, *line.other_names)
        host_id = next((known for name in names if (known := matched(name, hosts)) is not None), None)
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
    first, last = invoice.span
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
    """Add up what a bill has of one host on one day; `devices`: their number on it.

    Several lines of one stretch of time, such as an instance's cores, memory and accelerators, are one use of it.
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
            span = line.start_ts, line.end_ts
            hours[span] = max(hours[span], line.hours * part.share / (devices if line.per_device else 1))
            costs[span] += part.effective_nano_usd
            if line.paid_elsewhere:
                paid_elsewhere.add(span)
        elif line.kind == DISCOUNT:
            effective += part.effective_nano_usd
            discounts += part.effective_nano_usd
        elif line.kind != NEGATION:  # of covered usage, whose effective cost stands for it
            beside += part.nano_usd
            continue
        nano += part.nano_usd
    priced = [span for span, cost in costs.items() if cost > 0 and span not in paid_elsewhere]
    return Billed(
        nano,
        effective,
        listed if has_list and hours else None,
        sum(hours.values()),
        beside,
        sum(hours[span] for span in priced),
        sum(costs[span] for span in priced) + discounts if priced else 0,
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
