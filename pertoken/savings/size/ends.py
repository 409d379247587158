"""Counts of replicas and latencies at both ends of the forecast's 80 % interval, and as is likely.

A device on which everything takes f times as long serves like one to which requests come f times as often, with
latencies f times as high: time is counted in other units. So each end is a forecast of its own, which includes what
queues make of slower devices. Its width is the published error of the forecast without any measurement of the host,
beside what the queueing model itself misses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from pertoken.catalog.market import Market
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import Latency, LatencyQuery, fewest_all, latencies, unmeasured_widths
from pertoken.forecast.served import Abstained
from pertoken.savings.size.workload import Workload
from pertoken.state.deployment import Deployment

Counts = tuple[int | None, int | None, int | None]
"""At the fast end, likely, at the slow end; None where no number of replicas holds the SLO."""
Bounds = tuple[float | None, float, float | None]
"""Low, likely, high of an 80 % interval; None where an end is not known, such as the high end of what is overloaded."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of the interval, as factors on the likely figures."""

    time: float
    """On the time of everything that devices do."""
    latency: float
    """On TTFT and TPOT at p95 at this time: what the queueing model misses is included."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Latencies of one of some replicas, milliseconds."""

    ttft_p95_ms: Bounds
    tpot_p95_ms: Bounds


@cache
def ends() -> tuple[End, End, End]:
    """Return the fast end, what is likely, and the slow end."""
    fast, likely, slow = (End(*(math.exp(sign * width) for width in unmeasured_widths())) for sign in (-1, 0, 1))
    return fast, likely, slow


def fewest_replicas(deployments: Sequence[Deployment], workload: Workload, market: Market) -> list[Counts]:
    """Return how many replicas of each deployment hold the SLO at each end. One that is not forecast holds none."""
    slo = workload.slo
    asked = [at(workload, deployment, 1) for deployment in deployments]
    by_end = []
    for end in ends():
        ttft, tpot = slo.ttft_p95_ms, slo.tpot_p95_ms
        limits = None if ttft is None else ttft / end.latency, None if tpot is None else tpot / end.latency
        counts = fewest_all([(query, (end.time,), limits) for query in asked], market)
        by_end.append([None if isinstance(count, Abstained) else count[0] for count in counts])
    return list(zip(*by_end, strict=True))


def figures(known: Sequence[tuple[Deployment, int]], workload: Workload, market: Market) -> list[Figures | None]:
    """Return the latencies of each deployment with its number of replicas; None where even likely it is overloaded."""
    by_end = [
        [
            _scaled(latency, end)
            for latency in latencies(
                [at(workload, deployment, replicas, end.time) for deployment, replicas in known], market
            )
        ]
        for end in ends()
    ]
    all_figures: list[Figures | None] = []
    for fast, likely, slow in zip(*by_end, strict=True):
        if likely is None:
            all_figures.append(None)
        else:
            low, high = fast or (None, None), slow or (None, None)
            all_figures.append(Figures((low[0], likely[0], high[0]), (low[1], likely[1], high[1])))
    return all_figures


def at(workload: Workload, deployment: Deployment, replicas: int, factor: float = 1.0) -> LatencyQuery:
    """Return what is asked of one of some replicas, its requests times a factor."""
    arrivals = replace(workload.arrivals, requests_per_s=workload.requests_per_s * factor / replicas)
    return LatencyQuery(deployment, workload.load, arrivals, Calibration())


def _scaled(latency: Latency | Abstained, end: End) -> tuple[float, float] | None:
    if isinstance(latency, Abstained) or latency.ttft_p95_ms is None or latency.tpot_p95_ms is None:
        return None
    return latency.ttft_p95_ms[1] * end.latency, latency.tpot_p95_ms[1] * end.latency
