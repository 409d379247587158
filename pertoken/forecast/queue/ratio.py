"""Ratio of the latency after a change to the latency before it. Errors that both forecasts share cancel."""

import math

import numpy as np

from pertoken.forecast.efficiency import deviation, half_width, intervals
from pertoken.forecast.host import Calibration
from pertoken.forecast.queue.latency import Latency, with_queue
from pertoken.forecast.serving import Range

SAME: Range = (1.0, 1.0, 1.0)
OTHER_LOAD = "raise_batch"
"""Kind of change of a deployment that gets another load."""


def ratios(before: Latency, after: Latency, calibration: Calibration, *, same_load: bool) -> tuple[Range, ...]:
    """Return the ratio of each figure with its 80 % interval: TTFT p50, p95, TPOT p50, p95.

    Both latencies have no refusal and are forecast under `calibration`. `same_load`: whether a replica gets the same
    requests before and after.
    """
    if after is before:
        return (SAME,) * len(after.slopes)
    kinds = None if after.kinds is None else after.kinds | (frozenset() if same_load else {OTHER_LOAD})
    covariance = np.asarray(calibration.posterior.covariance[0])
    ranges = []
    for index, (present, proposed) in enumerate(zip(_likely(before), _likely(after), strict=True)):
        log_ratio = math.log(proposed / present)
        slope = after.slopes[index] - before.slopes[index]
        log_sd = math.sqrt(max(float(slope @ covariance @ slope), 0.0) + (slope[-1] * deviation().noise) ** 2)
        device = intervals().floor if kinds is None else float(half_width(kinds, log_sd))
        # The error of the queueing model is common to both where they hardly differ.
        spread = math.exp(with_queue(device, min(1.0, abs(log_ratio))))
        ranges.append((proposed / present / spread, proposed / present, proposed / present * spread))
    return tuple(ranges)


def _likely(latency: Latency) -> list[float]:
    figures = (latency.ttft_p50_ms, latency.ttft_p95_ms, latency.tpot_p50_ms, latency.tpot_p95_ms)
    return [figure[1] for figure in figures if figure is not None]
