"""Predicted cost of future days from past whole days: level, day of the week and trend, with an interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    known = [day for day in days if day[0] > days[-1][0] - MAX_DAYS] if days else []
    if len(known) < MIN_DAYS:
        return f"{len(known)} whole days are recorded, and a month is predicted from {MIN_DAYS} on"
    if not ahead:
        return Outlook(0.0, 0.0, 0.0, "the month is over")
    weekdays, trend = len(known) >= MIN_DAYS_FOR_WEEKDAYS, len(known) >= MIN_DAYS_FOR_TREND
    origin = known[-1][0]
    design = _design([number for number, _ in known], origin, weekdays, trend)
    usd = np.array([value for _, value in known])
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
    basis = f"{len(known)} whole days: {', '.join(parts)}"
    return Outlook(max(0.0, likely - half), max(0.0, likely), max(0.0, likely + half), basis)


def _design(numbers: Sequence[int], origin: int, weekdays: bool, trend: bool) -> Array:
    at = np.array(numbers)
    columns = [(at % 7 == day).astype(float) for day in range(7)] if weekdays else [np.ones(len(at))]
    if trend:
        columns.append((at - origin) / 7.0)
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
