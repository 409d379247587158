"""Dollars of every day, of all devices that have a price."""

from collections import defaultdict
from dataclasses import dataclass

from pertoken.costs.bill import Bill, midnights
from pertoken.units import SHARE
from pertoken.window.columns import NULL
from pertoken.window.reading import DAY


@dataclass(slots=True)
class DaySpend:
    """Dollars of one day of the calendar, UTC."""

    start_ts: int
    nano_usd: int = 0
    priced_ms: int = 0
    """Device time that has a price."""
    unpriced_ms: int = 0
    """Time of accelerators without one."""


def owner_days(bill: Bill, basis: str) -> dict[str, tuple[DaySpend, ...]]:
    """Return the days of each owner with time of devices that its deployments held, oldest first."""
    owners = bill.inventory.owners(basis)
    days: dict[str, dict[int, DaySpend]] = defaultdict(dict)
    for owned in bill.by_bucket(DAY).owned:
        columns = (getattr(owned, name).tolist() for name in ("epoch_id", "bucket", "held_ns", "nano_usd"))
        for epoch_id, bucket, held_ns, nano_usd in zip(*columns, strict=True):
            owner = owners.get(epoch_id)
            if owner is not None and held_ns:
                day = days[owner].setdefault(bucket, DaySpend(bucket * DAY))
                priced = nano_usd != NULL
                day.nano_usd += nano_usd if priced else 0
                day.priced_ms += held_ns // SHARE if priced else 0
                day.unpriced_ms += 0 if priced else held_ns // SHARE
    return {name: tuple(day for _, day in sorted(by_day.items())) for name, by_day in days.items()}


def daily_spend(bill: Bill) -> tuple[DaySpend, ...]:
    """Return the days of a bill with anything recorded, oldest first; its first and last may be parts of days.

    Recorded device time is what is counted: time in which no agent ran is in no day.
    """
    days: dict[int, DaySpend] = {}
    for line in bill.device_costs(midnights(bill.window)):
        day = days.setdefault(line.start_ts // DAY, DaySpend(line.start_ts // DAY * DAY))
        if line.nano_usd is not None:
            day.nano_usd += line.nano_usd
            day.priced_ms += line.duration_ms
        elif bill.inventory.devices[line.device_id].kind != "cpu":  # an instance's price is of its accelerators
            day.unpriced_ms += line.duration_ms
    return tuple(day for _, day in sorted(days.items()) if day.priced_ms or day.unpriced_ms)
