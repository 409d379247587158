"""Searches in many functions at once, one in each row: each row ends where it would alone."""

from collections.abc import Callable

import numpy as np

from pertoken.arrivals import Array

MAX_STEPS = 100
"""Of a search; it takes a few."""
TOLERANCE = 1e-14
"""Relative tolerance of the result, near rounding error."""


def crossing(rising: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return where functions rise to 0 between `low` and `high`, shape (n,); `low` where they are there already, `high`
    where they are not there yet.

    By false position (Illinois: Dowell and Jarratt, 1971), which ends at once for a straight line.
    """
    at_low, at_high = rising(low), rising(high)
    crossing_at = np.where(at_low >= 0, low, high)
    left = (at_low < 0) & (at_high > 0)
    side = np.zeros(len(low))
    for _ in range(MAX_STEPS):
        if not left.any():
            break
        apart = np.where(left, at_high - at_low, 1.0)
        middle = (low * at_high - high * at_low) / apart
        middle = np.where((middle > low) & (middle < high), middle, (low + high) / 2)
        value = rising(middle)
        converged = np.abs(value) * (high - low) <= TOLERANCE * np.abs(middle) * apart
        below = value < 0
        # An end that stays twice counts half, so that the next point lies beyond what is sought.
        at_high = np.where(below, np.where(side < 0, at_high / 2, at_high), value)
        at_low = np.where(below, value, np.where(side > 0, at_low / 2, at_low))
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        side = np.where(below, -1.0, 1.0)
        crossing_at = np.where(left, middle, crossing_at)
        left &= ~converged & (high - low > TOLERANCE * np.abs(high))
    return crossing_at
