"""Dollars of every day, of all devices that have a price."""

from collections.abc import Iterable
from dataclasses import dataclass

from pertoken.costs.ledger import divide
from pertoken.costs.prices.book import PriceBook
from pertoken.units import HOUR_MS
from pertoken.window.reading import Window

DAY = 86_400


@dataclass(slots=True)
class DaySpend:
    """Dollars of one day of the calendar, UTC."""

    start_ts: int
    nano_usd: int = 0
    priced_ms: int = 0
    """Device time that has a price."""
    unpriced_ms: int = 0
    """Time of accelerators without one."""


def daily_spend(window: Window, prices: PriceBook) -> tuple[DaySpend, ...]:
    """Return the days of a window with anything recorded, oldest first; its first and last may be parts of days.

    Recorded device time is what is counted: time in which no agent ran is in no day.
    """
    payers = {device_id: row for device_id, row in window.inventory.devices.items() if row.parent_id is None}
    days: dict[int, DaySpend] = {}
    for first, _, times in window.device_time({*prices.changes(), *_midnights(window)}):
        day = days.setdefault(first // DAY, DaySpend(first // DAY * DAY))
        for device_id, duration_ms, _ in times:
            rate = prices.rate(payers[device_id], first) if device_id in payers else None
            if rate is not None:
                day.nano_usd += divide(duration_ms * rate, HOUR_MS)
                day.priced_ms += duration_ms
            elif device_id in payers and payers[device_id].kind != "cpu":  # an instance's price is of its accelerators
                day.unpriced_ms += duration_ms
    return tuple(day for _, day in sorted(days.items()) if day.priced_ms or day.unpriced_ms)


def _midnights(window: Window) -> Iterable[int]:
    return range(window.start // DAY * DAY + DAY, window.end, DAY)
