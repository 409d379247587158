"""Spend of a calendar month: dollars so far, the likely total, and the thresholds reached."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from pertoken.costs.bill import Bill, bill, midnights
from pertoken.store.connect.open import Store
from pertoken.units import NANO_USD, SHARE
from pertoken.window.columns import NULL
from pertoken.window.reading import DAY, first_recorded


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

    Recorded device time counts: time in which no agent ran is in no day.
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


MIN_DAYS = 4
"""Whole days before which nothing is predicted: a mean of fewer has no interval worth the name."""
MIN_DAYS_FOR_WEEKDAYS = 14
"""Whole days from which each day of the week has a level of its own: each was seen twice."""
MIN_DAYS_FOR_TREND = 28
"""Whole days from which a trend is fitted: within fewer weeks one unusual week would be taken for one."""
MAX_DAYS = 91
"""Days before that count: thirteen weeks."""
Z_90 = 1.2816
"""Quantile of the normal distribution that 10 % of it lie above."""
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Dollars of days to come together, with the 80 % interval, and what it rests on."""

    low: float
    likely: float
    high: float
    basis: str


def outlook(days: Sequence[tuple[int, float]], ahead: Sequence[tuple[int, float]]) -> Outlook | str:
    """Predict the sum of days to come; return the reason where too few days are known.

    `days`: (number of the day since 1970, dollars) of whole days, rising. `ahead`: (number of the day, share of it that
    is still to come). Least squares on level, days of the week and trend. The interval holds the spread of single days,
    what the fit leaves open, and that unusual days come in rows (correlation of neighbours); it does not know of
    changes that are planned.
    """
    recent = [day for day in days if day[0] > days[-1][0] - MAX_DAYS] if days else []
    if len(recent) < MIN_DAYS:
        return f"{len(recent)} whole days are recorded, and a month is predicted from {MIN_DAYS} on"
    if not ahead:
        return Outlook(0.0, 0.0, 0.0, "the month is over")
    weekdays, trend = len(recent) >= MIN_DAYS_FOR_WEEKDAYS, len(recent) >= MIN_DAYS_FOR_TREND
    origin = recent[-1][0]
    design = _design([number for number, _ in recent], origin, weekdays, trend)
    usd = np.array([value for _, value in recent])
    fitted, *_ = np.linalg.lstsq(design, usd, rcond=None)
    residuals = usd - design @ fitted
    freedom = len(usd) - int(np.linalg.matrix_rank(design))
    variance = float(residuals @ residuals) / freedom * _in_rows(residuals)
    shares = np.array([share for _, share in ahead])
    to_come = _design([number for number, _ in ahead], origin, weekdays, trend)
    weights = shares @ to_come
    left_open = float(weights @ np.linalg.pinv(design.T @ design) @ weights)
    likely = float(weights @ fitted)
    half = _t_90(freedom) * math.sqrt(variance * (left_open + float(shares @ shares)))
    parts = ["their mean", *(["day of the week"] if weekdays else []), *(["trend"] if trend else [])]
    basis = f"{len(recent)} whole days: {', '.join(parts)}"
    return Outlook(max(0.0, likely - half), max(0.0, likely), max(0.0, likely + half), basis)


def _design(numbers: Sequence[int], origin: int, weekdays: bool, trend: bool) -> Array:
    day_numbers = np.array(numbers)
    columns = [(day_numbers % 7 == day).astype(float) for day in range(7)] if weekdays else [np.ones(len(day_numbers))]
    if trend:
        columns.append((day_numbers - origin) / 7.0)
    return np.column_stack(columns)


def _in_rows(residuals: Array) -> float:
    """Return by what unusual days that come in rows widen the variance of a sum: (1 + r) / (1 - r), 1 at least.

    r is the correlation of neighbouring days (a first-order autoregression).
    """
    spread = float(residuals @ residuals)
    if spread <= 0:
        return 1.0
    correlation = min(0.9, max(0.0, float(residuals[1:] @ residuals[:-1]) / spread))
    return (1 + correlation) / (1 - correlation)


def _t_90(freedom: int) -> float:
    """Return the 90 % quantile of Student's t distribution.

    Cornish-Fisher expansion to the second order (Abramowitz and Stegun 26.7.5): within 1 % from 3 degrees on.
    """
    z = Z_90
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


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
    """Basis of `total`."""
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
    """Return a month without records yet."""
    return spend_of((), *month_of(now_ts), now_ts, now_ts)


def spend_of(days: Sequence[DaySpend], start: int, end: int, now_ts: int, first_ts: int) -> MonthSpend:
    """Return the spend of a month from the days until `now_ts`; `first_ts`: when recording began."""
    month = tuple(day for day in days if day.start_ts >= start)
    priced_ms, unpriced_ms = (sum(getattr(day, name) for day in month) for name in ("priced_ms", "unpriced_ms"))
    spent = sum(day.nano_usd for day in month) if priced_ms else None
    # A day on which nothing was recorded is not known: devices may have been paid for all the same.
    priced_days = [day for day in days if day.priced_ms and first_ts <= day.start_ts <= now_ts - DAY]
    likely_end = outlook([(day.start_ts // DAY, day.nano_usd / NANO_USD) for day in priced_days], _ahead(now_ts, end))
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
