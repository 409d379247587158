"""Spend of a calendar month: dollars so far, the likely total, and the thresholds reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pertoken.costs.bill import bill
from pertoken.costs.spend.days import DaySpend, daily_spend, owner_days
from pertoken.costs.spend.outlook import MAX_DAYS, Outlook, outlook
from pertoken.store.connect.open import Store
from pertoken.units import NANO_USD, SHARE
from pertoken.window.reading import DAY, first_recorded

SPENT, EXPECTED = "spent", "expected"
KEPT_S = 3600
"""Time for which alerts and metrics go on with the spend that they read."""


@dataclass(frozen=True, slots=True)
class MonthSpend:
    """A month until now. Dollars are of recorded device time with a price."""

    start_ts: int
    end_ts: int
    now_ts: int
    nano_usd: int | None
    """Until now; None where no recorded device has a price."""
    total: tuple[int, int, int] | None
    """Low, likely, high of the whole month, nano-USD, an 80 % interval; None: see `reason`."""
    basis: str | None
    """What `total` rests on."""
    reason: str | None
    """Why `total` is not known."""
    days: tuple[DaySpend, ...]
    """Days of the month with anything recorded."""
    unpriced_share: float
    """Share of the month's recorded device time that has no price, of CPUs not counted."""
    unrecorded_s: int
    """Seconds of the month until now before anything was recorded."""

    @property
    def name(self) -> str:
        """`2026-11`."""
        return datetime.fromtimestamp(self.start_ts, UTC).strftime("%Y-%m")


@dataclass(frozen=True, slots=True)
class Alert:
    """A threshold of the budget that is reached."""

    kind: str
    """`SPENT` (until now) or `EXPECTED` (the likely spend of the whole month is above the budget)."""
    threshold: float
    """Share of the budget."""

    @property
    def threshold_1e4(self) -> int:
        """As it is stored."""
        return round(self.threshold * 10_000)


def month_spend(store: Store, now_ts: int, *, dated: bool = False) -> MonthSpend:
    """Return the spend of the calendar month (UTC) that `now_ts` lies in. Raises StoreError.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then.
    """
    start, end = month_of(now_ts)
    first = first_recorded(store)
    with bill(store, min(start, now_ts // DAY * DAY - MAX_DAYS * DAY), now_ts, dated=dated) as priced:
        days = daily_spend(priced)
    return spend_of(days, start, end, now_ts, now_ts if first is None else first)


def spend_by_owner(store: Store, basis: str, now_ts: int, *, dated: bool = False) -> dict[str, MonthSpend]:
    """Return the spend of each owner by a basis, in the month of `now_ts`, as `month_spend` does. Raises StoreError."""
    start, end = month_of(now_ts)
    first = first_recorded(store)
    with bill(store, min(start, now_ts // DAY * DAY - MAX_DAYS * DAY), now_ts, dated=dated) as priced:
        days_of = owner_days(priced, basis)
    first_ts = now_ts if first is None else first
    return {name: spend_of(days, start, end, now_ts, first_ts) for name, days in days_of.items()}


class RecentMonths:
    """Spend of the present month by basis of owners, read again after `KEPT_S`: it needs the bill of two months."""

    def __init__(self) -> None:
        self._read: dict[str | None, Mapping[str, MonthSpend]] = {}
        self._read_ts: dict[str | None, int] = {}

    def spend(self, store: Store, basis: str | None, now_ts: int, *, dated: bool = False) -> Mapping[str, MonthSpend]:
        """Return the spend of each owner, or with None that of the fleet as the owner "". Raises StoreError."""
        read_ts = self._read_ts.get(basis)
        if read_ts is None or not 0 <= now_ts - read_ts < KEPT_S or month_of(read_ts) != month_of(now_ts):
            if basis is None:
                self._read[basis] = {"": month_spend(store, now_ts, dated=dated)}
            else:
                self._read[basis] = spend_by_owner(store, basis, now_ts, dated=dated)
            self._read_ts[basis] = now_ts
        return self._read[basis]


def no_spend(now_ts: int) -> MonthSpend:
    """Return a month of which nothing is recorded yet."""
    return spend_of((), *month_of(now_ts), now_ts, now_ts)


def spend_of(days: Sequence[DaySpend], start: int, end: int, now_ts: int, first_ts: int) -> MonthSpend:
    """Return the spend of a month from the days until `now_ts`; `first_ts`: when recording began."""
    month = tuple(day for day in days if day.start_ts >= start)
    priced_ms, unpriced_ms = (sum(getattr(day, name) for day in month) for name in ("priced_ms", "unpriced_ms"))
    spent = sum(day.nano_usd for day in month) if priced_ms else None
    # A day on which nothing was recorded is not known: devices may have been paid for all the same.
    whole = [day for day in days if day.priced_ms and first_ts <= day.start_ts <= now_ts - DAY]
    likely_end = outlook([(day.start_ts // DAY, day.nano_usd / NANO_USD) for day in whole], _ahead(now_ts, end))
    if spent is None:
        likely_end = (
            "no recorded device has a price: `pertoken prices set`" if month else "nothing is recorded in it yet"
        )
    likely = None if isinstance(likely_end, str) or spent is None else _total(spent, likely_end)
    return MonthSpend(
        start_ts=start,
        end_ts=end,
        now_ts=now_ts,
        nano_usd=spent,
        total=likely,
        basis=None if isinstance(likely_end, str) else likely_end.basis,
        reason=likely_end if isinstance(likely_end, str) else None,
        days=month,
        unpriced_share=unpriced_ms / (priced_ms + unpriced_ms) if priced_ms + unpriced_ms else 0.0,
        unrecorded_s=max(0, min(now_ts, first_ts) - start),
    )


def alerts(spend: MonthSpend, budget_nano_usd: int, thresholds: Sequence[float]) -> tuple[Alert, ...]:
    """Return the thresholds that the spend of a month reached, and whether it is likely to go above the budget."""
    spent = spend.nano_usd or 0
    reached = [
        Alert(SPENT, threshold)
        for threshold in thresholds
        if spent * SHARE >= round(threshold * SHARE) * budget_nano_usd
    ]
    beyond = spend.total is not None and spend.total[1] > budget_nano_usd
    return (*reached, *([Alert(EXPECTED, 1.0)] if beyond else []))


def month_of(ts: int) -> tuple[int, int]:
    """Return the first instants of the calendar month (UTC) of a time and of the next one."""
    start = datetime.fromtimestamp(ts, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return int(start.timestamp()), int(after.timestamp())


def _ahead(now_ts: int, end: int) -> list[tuple[int, float]]:
    """Return the days of the month that are not over, with the share of each that is to come."""
    today = now_ts // DAY
    rest = 1 - (now_ts - today * DAY) / DAY
    return [(number, rest if number == today else 1.0) for number in range(today, end // DAY)]


def _total(spent: int, rest: Outlook) -> tuple[int, int, int]:
    low, likely, high = (spent + round(usd * NANO_USD) for usd in (rest.low, rest.likely, rest.high))
    return low, likely, high
