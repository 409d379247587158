"""TTFT and TPOT of a deployment under a load: the queueing model over the calibrated serving model, with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from pertoken.arrivals import Arrivals, Lengths, joined
from pertoken.catalog.market import Market
from pertoken.forecast.calibration import LoadErrors, loads_of, log_times
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import PREFILL_AT, Efficiency, deviation, efficiency, intervals, time_scale
from pertoken.forecast.host import Calibration
from pertoken.forecast.queueing import (
    MAX_UTILIZATION,
    NO_LIMIT_S,
    ServiceTimes,
    UnderLoad,
    capacity_per_s,
    overrun,
    under_load,
)
from pertoken.forecast.served import Abstained, Load, for_each, measured_kinds
from pertoken.forecast.serving import Z_80, Range, concurrency_limits, interval_around
from pertoken.forecast.terms import TERMS, prefill_seconds, seconds, total
from pertoken.state.deployment import Deployment

POINTS = 12
"""Batch sizes, evenly spaced in the logarithm, at which a step is computed. Between them it is linear."""
DECODE_AT = tuple(index for index in range(len(TERMS)) if index not in PREFILL_AT)
"""Indices of the terms of a decode step in `TERMS`."""
MIN_STEP = 0.1
"""Least share of the model's decode step that errors near measured points may leave of it, so that it stays above 0
where most of a step is prefill: a judgement."""


def service(
    c: Candidates,
    table: Efficiency,
    prompt: Lengths,
    generated: Lengths,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
    missed: Array | None = None,
) -> ServiceTimes:
    """Return the step and prefill times of one replica of each candidate under these lengths.

    `limit`, shape (n,): sequences of the whole deployment that memory and the engine allow to run at once.
    `chunk_tokens`: maximum prompt tokens of one engine step. `shift`: as for `steady`. `missed`: see `missed_steps`.
    """
    limit_per_replica = np.maximum(limit / c.dp, 1.0)
    running, mean = batches(c, limit), _at_means(c, prompt, generated)
    scale = time_scale(c, table, shift)
    term_s = seconds(mean, running * mean.dp)
    decode = total(np.take(term_s, DECODE_AT, axis=-1) * np.take(scale, DECODE_AT, axis=-1)[:, None, :])
    if missed is not None:
        # What a token takes in all is measured; its share of prefill is left as it is.
        more = total(term_s * scale[:, None, :]) * np.expm1(missed)
        decode = np.maximum(decode + more, MIN_STEP * decode)
    tokens = np.broadcast_to(prompt.rows, (len(c), prompt.rows.shape[1]))
    prefill_s = prefill_seconds(replace(mean, prompt_len=tokens), 1.0)
    prefill = sum(part_s * scale[:, index, None] for index, part_s in zip(PREFILL_AT, prefill_s, strict=True))
    computed = prompt.rows * (1 - mean.cached_share)
    steps = np.maximum(1.0, np.ceil(computed / np.reshape(chunk_tokens, (-1, 1))))
    return ServiceTimes(running, decode, np.maximum(prefill, 1e-9), steps, limit_per_replica)


def batches(c: Candidates, limit: Array) -> Array:
    """Return the batches of one replica at which steps are computed, up to a `limit` as for `service`, shape
    (n, `POINTS`).
    """
    return np.asarray(np.maximum(limit / c.dp, 2.0)[:, None] ** (np.arange(POINTS) / (POINTS - 1)))


def missed_steps(
    c: Candidates, prompt: Lengths, generated: Lengths, limit: Array, errors: Sequence[LoadErrors | None]
) -> Array:
    """Return the log of the measured time of a token over the model's at `batches`, as known from points near them.

    Arguments as for `service`; `errors` of each candidate. Shape (n, `POINTS`).
    """
    mean = _at_means(c, prompt, generated)
    return log_times(errors, loads_of(mean, batches(c, limit) * mean.dp))


def _at_means(c: Candidates, prompt: Lengths, generated: Lengths) -> Candidates:
    """Return the candidates under requests of mean lengths, spread over batches."""
    means = (np.broadcast_to(lengths.rows.mean(axis=1), (len(c),)) for lengths in (prompt, generated))
    return replace(c, **dict(zip(("prompt_len", "generated_len"), means, strict=True))).spread()


def forecast_under(
    c: Candidates,
    table: Efficiency,
    arrivals: Arrivals,
    limit: Array,
    chunk_tokens: Array | float = np.inf,
    shift: Array | float = 0.0,
    missed: Array | None = None,
    shares: tuple[float, ...] = (0.5, 0.95),
) -> UnderLoad:
    """Return steady states of whole deployments under one load, spread evenly and at random over their replicas.

    Arguments as for `service`; `shares`: quantiles of TTFT and TPOT to compute.
    """
    replica_service = service(c, table, arrivals.prompt, arrivals.generated, limit, chunk_tokens, shift, missed)
    replica_state = under_load(replica_service, arrivals.requests_per_s / c.dp, arrivals.generated, shares)
    return replace(
        replica_state,
        capacity_per_s=replica_state.capacity_per_s * c.dp,
        running=replica_state.running * c.dp,
        waiting=replica_state.waiting * c.dp,
        tok_s=replica_state.tok_s * c.dp,
    )


END = attrgetter("deployment", "load")
"""Deployment and load of a query."""
SHARES = (0.5, 0.95)
MAX_HALF_WIDTH = 50.0
"""Of the logarithm of a figure: close to saturation a small change of speed changes a wait without bound, and the ends
of its interval stay numbers."""
SAME: Range = (1.0, 1.0, 1.0)
OTHER_LOAD = "raise_batch"
"""Kind of change of a deployment that gets another load."""
NUDGE = -0.02
"""Step in log time for numeric derivatives: negative (faster), so that a stable queue stays stable."""
ROWS_AT_ONCE = 256
"""Deployments that are forecast together: the arrays of more do not fit into a processor's cache."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles over requests, each (low, likely, high) of an 80 % interval, or the reason why there are none."""

    ttft_p50_ms: Range | None = None
    ttft_p95_ms: Range | None = None
    """Time in the queue included."""
    tpot_p50_ms: Range | None = None
    tpot_p95_ms: Range | None = None
    utilization: float = 0.0
    """Arrivals over the requests/s that a full batch finishes. A value of 1 or more is a refusal."""
    overloaded: float = 0.0
    """Probability, 0 to 1, that more requests arrive than the replica can serve. The intervals assume that fewer do."""
    refusal: str | None = None
    assumptions: tuple[str, ...] = ()
    slopes: tuple[Array, ...] = field(default=(), compare=False, repr=False)
    """Change of each figure's logarithm with the log time of each group of terms, in the order of the fields."""
    kinds: frozenset[str] | None = field(default=None, compare=False, repr=False)
    """Kinds of the change from the measured deployment; None on a host without measurements."""


@dataclass(frozen=True, slots=True)
class LikelyLatency:
    """Likely quantiles over requests, milliseconds; meaningless with a `refusal`."""

    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
    refusal: str | None = None
    utilization: float = 0.0
    """As `Latency.utilization`."""


@dataclass(frozen=True, slots=True)
class LatencyQuery:
    """Inputs of a latency forecast."""

    deployment: Deployment
    load: Load
    arrivals: Arrivals
    calibration: Calibration


def utilizations(queries: Sequence[LatencyQuery], market: Market) -> list[float | Abstained]:
    """Return `Latency.utilization` of each query, or `Abstained`, without computing quantiles."""

    def shares(forecastable: Sequence[LatencyQuery], c: Candidates) -> list[float]:
        replicas, generated = replicas_of(forecastable, c)
        rate = np.array([query.arrivals.requests_per_s for query in forecastable]) / c.dp
        values: list[float] = (rate / capacity_per_s(replicas, generated)).tolist()
        return values

    return for_each(queries, END, market, shares)


def latencies(queries: Sequence[LatencyQuery], market: Market) -> list[Latency | Abstained]:
    """Return `latency` of each query, or `Abstained`. They are computed together."""
    at_once = max(1, ROWS_AT_ONCE // (len(deviation().groups) + 1))
    return for_each(queries, END, market, partial(_latencies, market=market), at_once)


def likely_latencies(queries: Sequence[LatencyQuery], market: Market) -> list[LikelyLatency | Abstained]:
    """Return the likely values of `latency` of each query, or `Abstained`: an eighth of the time, without intervals."""
    return for_each(queries, END, market, _likely_latencies, ROWS_AT_ONCE)


def _latencies(queries: Sequence[LatencyQuery], c: Candidates, market: Market) -> list[Latency]:
    groups = deviation().groups
    nudged = NUDGE * np.concatenate([np.zeros((1, groups.shape[1])), groups])
    state = _states(queries, c, nudged)
    figures = _figures_ms(state)
    latencies_of = []
    for index, query in enumerate(queries):
        own_rows = slice(index * len(nudged), (index + 1) * len(nudged))
        utilization = state.utilization[own_rows]
        if state.saturated[own_rows][0]:
            refusal = _overload(query, state.capacity_per_s[own_rows][0])
            latencies_of.append(Latency(utilization=float(utilization[0]), refusal=refusal))
        else:
            latencies_of.append(_with_intervals(query, figures[own_rows], utilization, market))
    return latencies_of


def _likely_latencies(queries: Sequence[LatencyQuery], c: Candidates) -> list[LikelyLatency]:
    state = _states(queries, c, np.zeros((1, len(TERMS))))
    latencies_of = []
    for row, (query, (ttft_p50, ttft_p95, tpot_p50, tpot_p95)) in enumerate(
        zip(queries, _figures_ms(state).tolist(), strict=True)
    ):
        refusal = _overload(query, state.capacity_per_s[row]) if state.saturated[row] else None
        utilization = float(state.utilization[row])
        latencies_of.append(LikelyLatency(ttft_p50, ttft_p95, tpot_p50, tpot_p95, refusal, utilization))
    return latencies_of


def _figures_ms(state: UnderLoad) -> Array:
    return 1000 * np.concatenate([state.ttft_s, state.tpot_s], axis=1)


def _overload(query: LatencyQuery, capacity_per_s: float) -> str:
    return (
        f"more arrives than is served: {query.arrivals.requests_per_s:.3g} requests/s at the p95 demand, and a full "
        f"batch finishes {capacity_per_s:.3g}"
    )


def _states(queries: Sequence[LatencyQuery], c: Candidates, nudged: Array) -> UnderLoad:
    """Return steady states: of each query one row for each row of `nudged`, which is added to its log times."""
    rows = np.repeat(np.arange(len(c)), len(nudged))
    shift = np.concatenate([query.calibration.shift + nudged for query in queries])
    limit = concurrency_limits(c, [query.calibration.capacity for query in queries])
    missed = _missed(queries, c, limit)
    prompt, generated = (
        joined([getattr(query.arrivals, name) for query in queries for _ in nudged]) for name in ("prompt", "generated")
    )
    return forecast_under(
        c.take(rows),
        efficiency(),
        Arrivals(np.array([query.arrivals.requests_per_s for query in queries])[rows], prompt, generated),
        limit[rows],
        np.array([_chunk_tokens(query.deployment) for query in queries])[rows],
        shift,
        None if missed is None else missed[rows],
        SHARES,
    )


def _with_intervals(query: LatencyQuery, figures: Array, utilization: Array, market: Market) -> Latency:
    """Return the latency of one deployment.

    `figures`, shape (1 + groups of terms, 4), and `utilization` have the likely values in their first row and in each
    further row those with the times of one group of terms changed by `NUDGE`.
    """
    deployment, calibration = query.deployment, query.calibration
    covariance = calibration.posterior.covariance[0]
    origin = calibration.origin
    kinds = measured_kinds(origin, deployment, market) if origin is not None else None
    ttft_p50, ttft_p95, tpot_p50, tpot_p95 = (
        interval_around(
            float(column[0]), min(with_queue(_half_width(_log_sd(column, covariance), kinds)), MAX_HALF_WIDTH)
        )
        for column in figures.T
    )
    spare_sd = -math.log(utilization[0]) / max(_log_sd(utilization, covariance), 1e-9)
    return Latency(
        ttft_p50_ms=ttft_p50,
        ttft_p95_ms=ttft_p95,
        tpot_p50_ms=tpot_p50,
        tpot_p95_ms=tpot_p95,
        utilization=float(utilization[0]),
        overloaded=1 - statistics.NormalDist().cdf(spare_sd),
        assumptions=assumptions(deployment),
        slopes=tuple(_slopes(column) for column in figures.T),
        kinds=kinds,
    )


def with_queue(half_width: float, share: float = 1.0) -> float:
    """Return the half width of a latency's logarithm from device time's, with a share of the queueing model's
    error. Its source: `python -m benchmarks.queueing`."""
    return math.hypot(half_width, share * Z_80 * deviation().misfit)


def unmeasured_widths() -> tuple[float, float]:
    """Return half widths of the logarithms of device time and of a latency where nothing of the host was measured."""
    return intervals().floor, with_queue(intervals().floor)


def assumptions(deployment: Deployment) -> tuple[str, ...]:
    """Return the unmeasured inputs of a latency forecast, each as a phrase."""
    seen = deployment.max_num_batched_tokens is not None or deployment.enable_chunked_prefill is False
    return () if seen else ("each prompt is computed in one step (max_num_batched_tokens not seen)",)


Limits = tuple[float | None, float | None, float | None, float | None]
"""Milliseconds of TTFT p50 and p95, TPOT p50 and p95; None where there is none."""


def overruns(queries: Sequence[tuple[LatencyQuery, Limits]], market: Market) -> list[bool | Abstained]:
    """Return whether each query likely serves less than arrives or exceeds one of its limits, or `Abstained`.

    The result follows from likely figures as in `latency`, without computing quantiles.
    """
    return for_each(queries, lambda pair: END(pair[0]), market, _overrun, ROWS_AT_ONCE)


def _overrun(requested: Sequence[tuple[LatencyQuery, Limits]], c: Candidates) -> list[bool]:
    queries, limits = zip(*requested, strict=True)
    replicas, generated = replicas_of(queries, c)
    rate = np.array([query.arrivals.requests_per_s for query in queries]) / c.dp
    return list(map(bool, overrun(replicas, rate, generated, limit_seconds(limits), SHARES)))


def replicas_of(queries: Sequence[LatencyQuery], c: Candidates) -> tuple[ServiceTimes, Lengths]:
    """Return step and prefill times of one replica of each query, and output lengths; `c` has a row for each query."""
    prompt, generated = _lengths(queries)
    limit = concurrency_limits(c, [query.calibration.capacity for query in queries])
    chunks = np.array([_chunk_tokens(query.deployment) for query in queries])
    shift = np.concatenate([query.calibration.shift for query in queries])
    missed = _missed(queries, c, limit)
    return service(c, efficiency(), prompt, generated, limit, chunks, shift, missed), generated


def _missed(queries: Sequence[LatencyQuery], c: Candidates, limit: Array) -> Array | None:
    """Return the errors of steps of each query by points, as `service` takes them; None where none is known."""
    errors = [query.calibration.errors_for(query.deployment) for query in queries]
    return missed_steps(c, *_lengths(queries), limit, errors) if any(errors) else None


def _lengths(queries: Sequence[LatencyQuery]) -> tuple[Lengths, Lengths]:
    """Return the lengths of prompts and outputs, a row for each query."""
    prompt, generated = (
        joined([getattr(query.arrivals, name) for query in queries]) for name in ("prompt", "generated")
    )
    return prompt, generated


def limit_seconds(limits_ms: Sequence[Sequence[float | None]]) -> Array:
    """Return limits in seconds, one row each; `NO_LIMIT_S` where there is none."""
    return np.array([[NO_LIMIT_S if limit is None else limit / 1000 for limit in limits] for limits in limits_ms])


def _chunk_tokens(deployment: Deployment) -> float:
    unchunked = deployment.enable_chunked_prefill is False
    return math.inf if unchunked else float(deployment.max_num_batched_tokens or math.inf)


def _log_sd(values: Array, covariance: Array) -> float:
    """Return the standard deviation of the logarithm of a figure; `values` has the rows of `_with_intervals`.

    It consists of the uncertainty that the calibration left and of the noise of one measurement.
    """
    slope = _slopes(values)
    uncertain = slope @ covariance @ slope
    return math.sqrt(max(uncertain, 0.0) + (slope[-1] * deviation().noise) ** 2)


def _slopes(values: Array) -> Array:
    """Return the change of a figure's logarithm with the log time of each group of terms, shape (groups,)."""
    slopes: Array = np.log(values[1:] / values[0]) / NUDGE
    return slopes


def _half_width(log_sd: float, kinds: frozenset[str] | None) -> float:
    """Return the half width of the 80 % interval of a logarithm.

    It is that of `compare` for the change from the measured deployment, and at least that of another load, under which
    it is asked for. `kinds`: kinds of that change, None on a host without measurements.
    """
    if kinds is None:
        return max(intervals().floor, Z_80 * log_sd)
    changes = [change for change in (kinds, {OTHER_LOAD}) if change]
    return max(float(intervals().half_width(change, log_sd)) for change in changes)


def ratios(present_latency: Latency, after: Latency, calibration: Calibration, *, same_load: bool) -> tuple[Range, ...]:
    """Return the ratio of each figure with its 80 % interval: TTFT p50, p95, TPOT p50, p95.

    Both latencies have no refusal and are forecast under `calibration`. `same_load`: whether a replica gets the same
    requests before and after.
    """
    if after is present_latency:
        return (SAME,) * len(after.slopes)
    kinds = None if after.kinds is None else after.kinds | (frozenset() if same_load else {OTHER_LOAD})
    covariance = np.asarray(calibration.posterior.covariance[0])
    ratio_intervals = []
    for index, (present, proposed) in enumerate(zip(_likely(present_latency), _likely(after), strict=True)):
        log_ratio = math.log(proposed / present)
        slope = after.slopes[index] - present_latency.slopes[index]
        log_sd = math.sqrt(max(float(slope @ covariance @ slope), 0.0) + (slope[-1] * deviation().noise) ** 2)
        device = intervals().floor if kinds is None else float(intervals().half_width(kinds, log_sd))
        # The error of the queueing model is common to both where they hardly differ.
        half_width = with_queue(device, min(1.0, abs(log_ratio)))
        ratio_intervals.append(interval_around(proposed / present, half_width))
    return tuple(ratio_intervals)


def _likely(latency: Latency) -> list[float]:
    figures = (latency.ttft_p50_ms, latency.ttft_p95_ms, latency.tpot_p50_ms, latency.tpot_p95_ms)
    return [figure[1] for figure in figures if figure is not None]


MAX_REPLICAS = 64
SloMs = tuple[float | None, float | None]
"""Objectives of TTFT and TPOT at p95, milliseconds; None where there is none."""
Counts = tuple[int | None, ...]


def fewest_all(
    queries: Sequence[tuple[LatencyQuery, Sequence[float], SloMs]], market: Market
) -> list[Counts | Abstained]:
    """Return the fewest copies of each deployment that share all arrivals evenly and likely serve them within its
    objectives, for its arrivals times each of its factors.

    None where `MAX_REPLICAS` copies do not, `Abstained` in place of a query that cannot be forecast.
    """
    return for_each(queries, lambda triple: END(triple[0]), market, _fewest)


def _fewest(requested: Sequence[tuple[LatencyQuery, Sequence[float], SloMs]], c: Candidates) -> Iterator[Counts]:
    """Yield the counts of each query. With more replicas fewer requests arrive at each: usually the first number that
    is not overloaded is enough, the largest one shows whether any is, and bisection finds the first of these.
    """
    queries, factors, limits = zip(*requested, strict=True)
    services, generated = replicas_of(queries, c)
    limits_s = limit_seconds(limits)
    owner = np.repeat(np.arange(len(c)), [len(of_query) for of_query in factors])
    per_s = np.array([query.arrivals.requests_per_s for query in queries])[owner] / c.dp[owner]
    per_s = per_s * np.concatenate([np.asarray(of_query, dtype=float) for of_query in factors])

    def hold(places: NDArray[np.int_], counts: NDArray[np.int_]) -> NDArray[np.bool_]:
        """Return whether these numbers of replicas meet the objectives."""
        held = np.zeros(len(places), dtype=bool)
        for first in range(0, len(places), ROWS_AT_ONCE):
            group = slice(first, first + ROWS_AT_ONCE)
            rows, rates = owner[places[group]], per_s[places[group]] / counts[group]
            of_rows = ServiceTimes(*(getattr(services, field.name)[rows] for field in fields(ServiceTimes)))
            held[group] = ~overrun(of_rows, rates, Lengths(generated.rows[rows]), limits_s[rows], SHARES[1:])
        return held

    stable = np.floor(per_s / (capacity_per_s(services, generated)[owner] * MAX_UTILIZATION)).astype(int) + 1
    low, high = stable.copy(), stable.copy()
    failing = np.flatnonzero(stable <= MAX_REPLICAS)
    failing = failing[~hold(failing, low[failing])]
    high[failing] = np.where(hold(failing, np.full(len(failing), MAX_REPLICAS)), MAX_REPLICAS, MAX_REPLICAS + 1)
    open_ends = failing[high[failing] <= MAX_REPLICAS]
    while len(open_ends := open_ends[high[open_ends] - low[open_ends] > 1]):
        middle = (low[open_ends] + high[open_ends]) // 2
        holds = hold(open_ends, middle)
        low[open_ends] = np.where(holds, low[open_ends], middle)
        high[open_ends] = np.where(holds, middle, high[open_ends])
    counts = iter(high.tolist())
    for of_query in factors:
        yield tuple(count if (count := next(counts)) <= MAX_REPLICAS else None for _ in of_query)
