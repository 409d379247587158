"""The usual comparison: mean of the week after against the week before, by a test that takes hours as independent."""

import math

import numpy as np

from benchmarks.proof.histories import HOUR_S, WEEK_H, History

Z95 = 1.6449


def naive_claims_saving(history: History) -> bool:
    """Return whether the 90 % interval of the difference of means (Welch) lies below 0."""
    hours = history.deployment
    before = (hours.ts < history.changed_at) & (hours.ts >= history.changed_at - WEEK_H * HOUR_S)
    after = hours.ts >= history.changed_at
    cost = hours.device_s_per_token
    difference = cost[after].mean() - cost[before].mean()
    error = math.sqrt(sum(float(np.var(cost[mask], ddof=1)) / mask.sum() for mask in (before, after)))
    return bool(difference + Z95 * error < 0)
