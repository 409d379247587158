"""TTFT and TPOT of a deployment under a load: the queueing model over the calibrated serving model, with ranges."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import (
    absolute_half_width,
    deviation,
    efficiency,
    half_width,
    unpacks_cache,
    with_unpacked,
)
from pertoken.forecast.host import Calibration
from pertoken.forecast.kinds import kinds_of
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.load import Arrivals, Lengths, joined
from pertoken.forecast.queue.queueing import beyond, capacity_per_s
from pertoken.forecast.queue.service import forecast_under, service
from pertoken.forecast.served import Abstained, Load, Row, resolve_each, stack_rows
from pertoken.forecast.serving import Z_80, Range, concurrency_limits
from pertoken.state.deployment import Deployment

SHARES = (0.5, 0.95)
MISSED = (0.15, 0.2, 0.15, 0.15)
"""Standard deviation of the logarithm that the queueing model itself misses: TTFT p50, p95, TPOT p50, p95. Source: its
errors beside an engine played step by step, and that engine's beside a real one (`python -m benchmarks.queueing`)."""
NUDGE = -0.02
"""Change of log times for a numeric sensitivity: faster, so that a stable queue stays stable."""
ROWS_AT_ONCE = 256
"""Deployments that are forecast together: with more the arrays do not stay in a processor's cache."""


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
    """Probability, 0 to 1, of more arrivals than the replica serves; the ranges are conditional on fewer."""
    refusal: str | None = None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LatencyQuery:
    """Inputs of a latency forecast."""

    deployment: Deployment
    load: Load
    arrivals: Arrivals
    calibration: Calibration


def latency(
    deployment: Deployment, load: Load, arrivals: Arrivals, market: Market, calibration: Calibration | None = None
) -> Latency:
    """Forecast the latency of a deployment that starts. A load above its capacity is refused: no time is defined there.

    Raises Abstained as `forecast` does.
    """
    (one,) = latencies([LatencyQuery(deployment, load, arrivals, calibration or Calibration())], market)
    if isinstance(one, Abstained):
        raise one
    return one


def utilizations(asked: Sequence[LatencyQuery], market: Market) -> list[float | Abstained]:
    """Return `Latency.utilization` of each, side by side; `Abstained` in place of a result. No quantile is computed."""
    rows = resolve_each([(query.deployment, query.load) for query in asked], market)
    known = [(query, row) for query, row in zip(asked, rows, strict=True) if not isinstance(row, Abstained)]
    if not known:
        return [row for row in rows if isinstance(row, Abstained)]
    c = stack_rows([row for _, row in known])
    replicas, generated = replicas_of([query for query, _ in known], c)
    rate = np.array([query.arrivals.requests_per_s for query, _ in known]) / c.dp
    results = iter((rate / capacity_per_s(replicas, generated)).tolist())
    return [row if isinstance(row, Abstained) else next(results) for row in rows]


def latencies(asked: Sequence[LatencyQuery], market: Market) -> list[Latency | Abstained]:
    """Return `latency` of each, forecast side by side; `Abstained` in place of a result."""
    latencies_of: list[Latency | Abstained | None] = []
    known: list[tuple[LatencyQuery, Row]] = []
    for query, row in zip(
        asked, resolve_each([(query.deployment, query.load) for query in asked], market), strict=True
    ):
        latencies_of.append(row if isinstance(row, Abstained) else None)
        if not isinstance(row, Abstained):
            known.append((query, row))
    forecast: list[Latency] = []
    at_once = max(1, ROWS_AT_ONCE // (len(deviation().groups) + 1))
    for first in range(0, len(known), at_once):
        some = known[first : first + at_once]
        forecast += _latencies([query for query, _ in some], stack_rows([row for _, row in some]), market)
    results = iter(forecast)
    return [next(results) if latency is None else latency for latency in latencies_of]


def _latencies(asked: Sequence[LatencyQuery], c: Candidates, market: Market) -> list[Latency]:
    groups = deviation().groups
    nudged = NUDGE * np.concatenate([np.zeros((1, groups.shape[1])), groups])
    rows = np.repeat(np.arange(len(c)), len(nudged))
    shift = np.concatenate([query.calibration.shift_for(query.deployment) + nudged for query in asked])
    prompt, generated = (
        joined([getattr(query.arrivals, name) for query in asked for _ in nudged]) for name in ("prompt", "generated")
    )
    state = forecast_under(
        c.take(rows),
        efficiency(),
        Arrivals(np.array([query.arrivals.requests_per_s for query in asked])[rows], prompt, generated),
        concurrency_limits(c, [query.calibration.capacity for query in asked])[rows],
        np.array([_chunk_tokens(query.deployment) for query in asked])[rows],
        shift,
        SHARES,
    )
    figures = 1000 * np.concatenate([state.ttft_s, state.tpot_s], axis=1)
    unpacked = unpacks_cache(c) | _unpacked_where_measured(asked, market)
    latencies_of = []
    for place, query in enumerate(asked):
        own = slice(place * len(nudged), (place + 1) * len(nudged))
        if state.saturated[own][0]:
            latencies_of.append(
                Latency(
                    utilization=float(state.utilization[own][0]),
                    refusal=f"more arrives than is served: {query.arrivals.requests_per_s:.3g} requests/s at the p95 "
                    f"demand, and a full batch finishes {state.capacity_per_s[own][0]:.3g}",
                )
            )
        else:
            latencies_of.append(_with_ranges(query, figures[own], state.utilization[own], bool(unpacked[place])))
    return latencies_of


def _unpacked_where_measured(asked: Sequence[LatencyQuery], market: Market) -> NDArray[np.bool_]:
    """Return whether the deployment that each was calibrated on unpacks its cache. Raises Abstained as `resolve`."""
    measured = [(place, query.calibration.origin) for place, query in enumerate(asked)]
    of = [(place, origin) for place, origin in measured if origin is not None]
    unpacked = np.zeros(len(asked), dtype=bool)
    if of:
        rows = resolve_each([(origin, asked[place].load) for place, origin in of], market)
        for row in rows:
            if isinstance(row, Abstained):
                raise row
        unpacked[[place for place, _ in of]] = unpacks_cache(
            stack_rows([e for e in rows if not isinstance(e, Abstained)])
        )
    return unpacked


def _with_ranges(asked: LatencyQuery, figures: Array, utilization: Array, unpacked: bool) -> Latency:
    """Return the latency of one deployment: its likely figures first in each column, then as they are nudged."""
    deployment, known = asked.deployment, asked.calibration
    kept, left_open = known.kept(deployment), known.posterior.covariance[0]
    kinds = with_unpacked(kinds_of(known.origin, deployment), unpacked) if known.origin is not None else None
    log_sd = [_log_sd(column, kept, left_open) for column in figures.T]
    ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (
        _range(float(likely), math.hypot(_half_width(sd, kinds), Z_80 * missed))
        for likely, sd, missed in zip(figures[0], log_sd, MISSED, strict=True)
    )
    spare = -math.log(utilization[0]) / max(_log_sd(utilization, kept, left_open), 1e-9)
    return Latency(
        ttft_p50_ms=ttft_p50,
        ttft_p95_ms=ttft_p95,
        tpot_p50_ms=tpot_p50,
        tpot_p95_ms=tpot_p95,
        utilization=float(utilization[0]),
        overloaded=1 - statistics.NormalDist().cdf(spare),
        assumptions=assumptions(deployment),
    )


def unmeasured_half_widths() -> tuple[float, float, float]:
    """Return half widths of 80 % intervals of logarithms where nothing was measured on the host: of the time of
    everything that devices do, and with what the queueing model misses of TTFT p95 and of TPOT p95."""
    device, (_, ttft, _, tpot) = absolute_half_width(), MISSED
    return device, math.hypot(device, Z_80 * ttft), math.hypot(device, Z_80 * tpot)


def assumptions(deployment: Deployment) -> tuple[str, ...]:
    """Return what its latency is forecast on without having been seen."""
    seen = deployment.max_num_batched_tokens is not None or deployment.enable_chunked_prefill is False
    return () if seen else ("each prompt is computed in one step (max_num_batched_tokens not seen)",)


Limits = tuple[float | None, float | None, float | None, float | None]
"""Milliseconds of TTFT p50 and p95, TPOT p50 and p95; None where there is none."""


def overruns(asked: Sequence[LatencyQuery], limits_ms: Limits, market: Market) -> list[bool | Abstained]:
    """Return of each whether it likely serves less than arrives, or exceeds a limit; `Abstained` in place of a result.

    It is what the likely figures of `latency` would show; no quantile is computed for it.
    """
    answers: list[bool | Abstained | None] = []
    rows, known = [], []
    for query, row in zip(
        asked, resolve_each([(query.deployment, query.load) for query in asked], market), strict=True
    ):
        answers.append(row if isinstance(row, Abstained) else None)
        if not isinstance(row, Abstained):
            rows.append(row)
            known.append(query)
    likely: list[bool] = []
    for first in range(0, len(known), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        likely += _overrun(known[some], stack_rows(rows[some]), limits_ms)
    results = iter(likely)
    return [next(results) if answer is None else answer for answer in answers]


def _overrun(asked: Sequence[LatencyQuery], c: Candidates, limits_ms: Limits) -> list[bool]:
    replicas, generated = replicas_of(asked, c)
    rate = np.array([query.arrivals.requests_per_s for query in asked]) / c.dp
    ttft, tpot = _limited(limits_ms[:2]), _limited(limits_ms[2:])
    state = beyond(replicas, rate, generated, [limit for _, limit in ttft], [limit for _, limit in tpot])
    late = state.saturated.copy()
    for limits, shares in ((ttft, state.ttft), (tpot, state.tpot)):
        for column, (share, _) in enumerate(limits):
            late |= shares[:, column] > 1 - share
    return [bool(row) for row in late]


def replicas_of(asked: Sequence[LatencyQuery], c: Candidates) -> tuple[Service, Lengths]:
    """Return step and prefill times of a replica of each deployment, and its output lengths; `c`: their rows."""
    prompt, generated = (joined([getattr(query.arrivals, name) for query in asked]) for name in ("prompt", "generated"))
    limit = concurrency_limits(c, [query.calibration.capacity for query in asked])
    chunks = np.array([_chunk_tokens(query.deployment) for query in asked])
    shift = np.concatenate([query.calibration.shift_for(query.deployment) for query in asked])
    return service(c, efficiency(), prompt, generated, limit, chunks, shift), generated


def _limited(limits_ms: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return (share of requests, seconds) of each limit that is set."""
    return [(share, limit / 1000) for share, limit in zip(SHARES, limits_ms, strict=True) if limit is not None]


def _chunk_tokens(deployment: Deployment) -> float:
    whole = deployment.enable_chunked_prefill is False
    return math.inf if whole else float(deployment.max_num_batched_tokens or math.inf)


def _log_sd(figure: Array, kept: Array, covariance: Array) -> float:
    """Of a figure, from its values as the times of each group of terms are nudged: what the calibration left open, what
    of it does not hold for this deployment, and the noise of one measurement."""
    prior = deviation()
    slope = np.log(figure[1:] / figure[0]) / NUDGE
    left_open = (slope * kept) @ covariance @ (slope * kept)
    lost = np.square(slope * prior.sd) @ (1 - np.square(kept))
    return math.sqrt(max(left_open, 0.0) + lost + (slope[-1] * prior.noise) ** 2)


def _half_width(log_sd: float, kinds: frozenset[str] | None) -> float:
    """Of the 80 % interval of a logarithm, as `compare` has it for a change from where the host was measured; `kinds`:
    None where nothing was measured."""
    if kinds is None:
        return max(absolute_half_width(), Z_80 * log_sd)
    return float(half_width(kinds or {"raise_batch"}, log_sd))


def _range(likely: float, half_width: float) -> Range:
    spread = math.exp(half_width)
    return likely / spread, likely, likely * spread
