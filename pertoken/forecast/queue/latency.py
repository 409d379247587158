"""TTFT and TPOT of a deployment under a load: the queueing model over the calibrated serving model, with ranges."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import absolute_half_width, deviation, efficiency, half_width, with_unpacked
from pertoken.forecast.queue.load import Arrivals
from pertoken.forecast.queue.service import forecast_under
from pertoken.forecast.served import Load, resolve
from pertoken.forecast.serving import Z_80, Calibration, Range, concurrency_limit, kinds_of
from pertoken.state.deployment import Deployment

SHARES = (0.5, 0.95)
MISSED = (0.15, 0.2, 0.15, 0.15)
"""Standard deviation of the logarithm that the queueing model itself misses: TTFT p50, p95, TPOT p50, p95. Source: its
errors beside an engine played step by step, and that engine's beside a real one (`python -m benchmarks.queueing`)."""
NUDGE = -0.02
"""Change of log times by which a sensitivity is measured: faster, so that what is stable stays so."""
MOST_REPLICAS = 64


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles over requests, each (low, likely, high) of an 80 % interval, or the reason there are none."""

    ttft_p50_ms: Range | None = None
    ttft_p95_ms: Range | None = None
    """Time in the queue included."""
    tpot_p50_ms: Range | None = None
    tpot_p95_ms: Range | None = None
    utilization: float = 0.0
    """Arrivals as a share of what a full batch finishes; 1 and more is a refusal."""
    overloaded: float = 0.0
    """How likely it is that more arrives than is served, 0 to 1; the ranges are of the case that it is not."""
    refusal: str | None = None
    assumptions: tuple[str, ...] = ()


def latency(
    deployment: Deployment, load: Load, arrivals: Arrivals, market: Market, calibration: Calibration | None = None
) -> Latency:
    """What requests see at a deployment that would start. A load above its capacity is refused: no time is right then.

    Raises Abstained as `forecast` does.
    """
    known = calibration or Calibration()
    found, groups = resolve([deployment], [load], market), deviation().groups
    ends = (found,) if known.origin is None else (found, resolve([known.origin], [load], market))
    nudged = NUDGE * np.concatenate([np.zeros((1, groups.shape[1])), groups])
    alike = found.take(np.zeros(len(nudged), dtype=np.intp))
    state = forecast_under(
        alike,
        efficiency(),
        arrivals,
        np.full(len(alike), concurrency_limit(found, known)),
        _chunk_tokens(deployment),
        known.shift_for(deployment) + nudged,
        SHARES,
    )
    utilization = float(state.utilization[0])
    if state.saturated[0]:
        return Latency(
            utilization=utilization,
            refusal=f"more arrives than is served: {arrivals.requests_per_s:.3g} requests/s at the p95 demand, and a "
            f"full batch finishes {state.capacity_per_s[0]:.3g}",
        )
    figures = 1000 * np.concatenate([state.ttft_s, state.tpot_s], axis=1)
    log_sd = [_log_sd(column, deployment, known) for column in figures.T]
    ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (
        _range(float(likely), math.hypot(_half_width(sd, deployment, known, ends), Z_80 * missed))
        for likely, sd, missed in zip(figures[0], log_sd, MISSED, strict=True)
    )
    spare = -math.log(utilization) / max(_log_sd(state.utilization, deployment, known), 1e-9)
    seen = deployment.max_num_batched_tokens is not None or deployment.enable_chunked_prefill is False
    return Latency(
        ttft_p50_ms=ttft_p50,
        ttft_p95_ms=ttft_p95,
        tpot_p50_ms=tpot_p50,
        tpot_p95_ms=tpot_p95,
        utilization=utilization,
        overloaded=1 - statistics.NormalDist().cdf(spare),
        assumptions=() if seen else ("each prompt is computed in one step (max_num_batched_tokens not seen)",),
    )


def fewest_replicas(
    deployment: Deployment,
    load: Load,
    arrivals: Arrivals,
    market: Market,
    calibration: Calibration | None = None,
    slo_ms: tuple[float | None, float | None] = (None, None),
) -> int | None:
    """Copies of a deployment that share all arrivals evenly and likely hold them, TTFT and TPOT at p95 within `slo_ms`.

    None if `MOST_REPLICAS` do not. Raises Abstained as `forecast` does.
    """
    known = calibration or Calibration()
    found = resolve([deployment], [load], market)
    copies = found.take(np.zeros(MOST_REPLICAS, dtype=np.intp))
    n = np.arange(1.0, MOST_REPLICAS + 1)
    state = forecast_under(
        copies,
        efficiency(),
        replace(arrivals, requests_per_s=arrivals.requests_per_s / n),
        np.full(len(copies), concurrency_limit(found, known)),
        _chunk_tokens(deployment),
        known.shift_for(deployment),
        SHARES[1:],
    )
    holds = ~state.saturated
    for limit, seconds in zip(slo_ms, (state.ttft_s, state.tpot_s), strict=True):
        if limit is not None:
            holds &= 1000 * seconds[:, 0] <= limit
    return int(n[holds][0]) if holds.any() else None


def _chunk_tokens(deployment: Deployment) -> float:
    whole = deployment.enable_chunked_prefill is False
    return math.inf if whole else float(deployment.max_num_batched_tokens or math.inf)


def _log_sd(figure: Array, deployment: Deployment, known: Calibration) -> float:
    """Of a figure, from its values as the times of each group of terms are nudged: what the calibration left open, what
    of it does not hold for this deployment, and the noise of one measurement."""
    prior, kept = deviation(), known.kept(deployment)
    slope = np.log(figure[1:] / figure[0]) / NUDGE
    left_open = (slope * kept) @ known.posterior.covariance[0] @ (slope * kept)
    lost = np.square(slope * prior.sd) @ (1 - np.square(kept))
    return math.sqrt(max(left_open, 0.0) + lost + (slope[-1] * prior.noise) ** 2)


def _half_width(log_sd: float, deployment: Deployment, known: Calibration, ends: Iterable[Candidates]) -> float:
    """Of the 80 % interval of a logarithm, as `compare` has it for a change from where the host was measured."""
    if known.origin is None:
        return max(absolute_half_width(), Z_80 * log_sd)
    kinds = with_unpacked(kinds_of(known.origin, deployment), *ends)
    return float(half_width(kinds or {"raise_batch"}, log_sd))


def _range(likely: float, half_width: float) -> Range:
    spread = math.exp(half_width)
    return likely / spread, likely, likely * spread
