"""Dollars of every day, of all devices that have a price."""

from dataclasses import dataclass

from pertoken.costs.bill import Bill, midnights
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
