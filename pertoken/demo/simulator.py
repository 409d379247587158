"""Simulator of a demo: engines with true efficiencies, arrivals of requests, and devices.

It shares only the catalog and the forecast's term formulas with the advisor: no rule, price estimate, calibration or
interval is imported, so that comparing advice with it is not circular.

- `requests` and `drift`: arrivals and their lengths over time, shaped by two production traces.
- `draw` and `engine`: the true speed of an engine, drawn from the uncertainty of the fitted table.
- `course`: operation of an engine under arrivals: tokens, busy time, latencies.
- `working` and `idling`: power and activity of its devices meanwhile.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from pertoken.catalog.market import Accelerator, Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import fitting_sequences, held_tokens, kv_tokens
from pertoken.forecast.efficiency import deviation, efficiency, intervals, table
from pertoken.forecast.power import CandidateWatts, busy_w, full_w, idle_w
from pertoken.forecast.served import Load, resolve
from pertoken.forecast.terms import TERMS, prefill_seconds, seconds, total
from pertoken.state.deployment import Deployment

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOUR_S, WEEK_H = 3600, 168
PEAK_H = 14.5
"""Hour of the day, UTC, with the most requests."""
THURSDAY = 3
"""Day of the week of 1970-01-01, from Monday on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Distribution of a service's requests over a week."""

    trace: str
    """`code` or `conversation`: the trace of lengths and bursts."""
    peak_to_trough: float
    weekend: float
    """Requests at weekends as a share of a working day."""
    silent: tuple[int, int] | None = None
    """Hours of the day, UTC, from and to, without requests; weekends then have none at all."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Statistics of a trace."""

    dispersion: float
    """Variance over mean of requests per minute."""
    prompt_len: Floats
    """Evenly spaced quantiles, divided by their mean."""
    generated_len: Floats


@cache
def traces() -> dict[str, Trace]:
    """Return the traces by name."""
    rows = tomllib.loads(files("pertoken.demo").joinpath("traces.toml").read_text(encoding="utf-8"))
    return {name: Trace(row["dispersion"], _shape(row["prompt_tokens"]), _shape(row["generated_tokens"]))
            for name, row in rows.items()}  # fmt: skip


def _shape(quantiles: list[int]) -> Floats:
    values = np.interp(np.linspace(0.005, 0.995, 100), np.linspace(0, 1, len(quantiles)), quantiles)
    return np.asarray(values / values.mean())


def weekly(shape: Shape, ts: Ints) -> Floats:
    """Return the expected requests at instants, relative to the mean hour of a week."""
    mean = _relative(shape, np.arange(WEEK_H) * HOUR_S).mean()
    return np.asarray(_relative(shape, ts) / mean)


def _relative(shape: Shape, ts: Ints) -> Floats:
    hour = (ts / HOUR_S) % 24
    day = (ts // (24 * HOUR_S) + THURSDAY) % 7  # 0 is Monday
    swing = (shape.peak_to_trough - 1) / (shape.peak_to_trough + 1)
    expected = (1 + swing * np.cos(2 * np.pi * (hour - PEAK_H) / 24)) * np.where(day >= 5, shape.weekend, 1.0)
    if shape.silent is not None:
        first, last = shape.silent
        asleep = (hour >= first) | (hour < last) if first > last else (hour >= first) & (hour < last)
        expected = np.where(asleep | (day >= 5), 0.0, expected)
    return np.asarray(expected)


def requests(rng: np.random.Generator, shape: Shape, per_s: float, ts: Ints, step_s: int, drift: Floats) -> Floats:
    """Return the random requests of each step that begins at `ts`, with bursts and drift.

    `per_s`: rate in the mean hour of a week. `drift`: logarithm of demand relative to its shape, at each step.
    """
    expected = per_s * step_s * weekly(shape, ts + step_s // 2) * np.exp(drift)
    # Burstiness: the traces' variance above a Poisson process increases with the number of requests.
    excess = (traces()[shape.trace].dispersion - 1) * 0.05
    spread = np.sqrt(expected + np.minimum(excess * expected, (0.25 * expected) ** 2))
    drawn = np.where(
        expected < 40, rng.poisson(np.maximum(expected, 0)), expected + spread * rng.standard_normal(ts.shape)
    )
    return np.asarray(np.where(expected > 0, np.maximum(np.round(drawn), 0.0), 0.0))


def drift(rng: np.random.Generator, hours: int, sd: float, rho: float = 0.8) -> Floats:
    """Return a random hourly logarithm around 0, with the autocorrelation `rho`."""
    values = rng.standard_normal(hours) * sd
    for hour in range(1, hours):
        values[hour] = rho * values[hour - 1] + np.sqrt(1 - rho**2) * values[hour]
    return np.asarray(values)


TRIES = 4000
Z_80 = 1.2816
BISECTIONS = 40
_LISTED = np.array([table()["terms"][name]["unit"] == "listed rate" for name in TERMS])
_PREFILL = [TERMS.index(name) for name in ("prefill_flops", "prefill_attention", "requests")]
_MEMORY = [TERMS.index(name) for name in ("weights", "experts", "kv_cache")]
_GEMM = [TERMS.index(name) for name in ("decode_flops", "prefill_flops", "prefill_attention")]


@dataclass(frozen=True, slots=True)
class Truth:
    """True efficiencies of one engine, hidden from the advisor."""

    deviation: Array
    """Logarithm of each term's time over the table's, shape (number of `TERMS`,)."""
    by_version: tuple[tuple[str, float], ...] = ()
    """Logarithm of all times by engine version."""
    by_format: tuple[tuple[str, float], ...] = ()
    """Logarithm of all times by weight format: the deviation of this host's kernels from the table."""
    power: float = 1.0
    """Power as a multiple of the curve."""

    def shift(self, deployment: Deployment) -> Array:
        """Return the logarithms to add to the table's for a deployment."""
        version = dict(self.by_version).get(deployment.engine_version or "", 0.0)
        return self.deviation + version + dict(self.by_format).get(deployment.weight_dtype or "", 0.0)


def draw(rng: np.random.Generator, deployment: Deployment, load: Load, market: Market) -> Array:
    """Return a physical deviation of an engine from the table, shape (number of `TERMS`,)."""
    deviations = deviation()
    c = resolve([deployment], [load], market)
    scale = efficiency().log_scale(c.tags)[0]
    term_s = seconds(c, np.array([max(1.0, load.running)]))[0]
    fitted_s = (term_s * np.exp(scale)).sum()
    bound = intervals().floor
    drawn = (rng.standard_normal((TRIES, len(deviations.sd))) * deviations.sd) @ deviations.groups
    off = np.log((term_s * np.exp(scale + drawn)).sum(axis=1) / fitted_s)
    likely = np.exp(-0.5 * (off / (bound / Z_80)) ** 2)  # as often as deployments outside the fit deviate as much
    faster = (_LISTED & (term_s > 0) & (scale + drawn < np.minimum(scale, 0.0))).any(axis=1)
    kept = np.flatnonzero((rng.random(TRIES) < likely) & ~faster)
    return np.asarray(drawn[kept[0]]) if len(kept) else np.zeros(len(TERMS))


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """True speed of a deployment, for any number of instants."""

    c: Candidates
    """One row for each instant."""
    scale: Array
    """Factor on the listed time of each term, shape (number of `TERMS`,) or one row for each instant."""

    def terms_s(self, running: Array) -> Array:
        """Return the seconds of each term in one step with `running` sequences."""
        return np.asarray(seconds(self.c, running) * self.scale)

    def token_s(self, running: Array) -> Array:
        """Return the seconds from one token of a sequence to its next."""
        return total(self.terms_s(running))

    def prefill_s(self) -> Array:
        """Return the seconds of a request's prefill, alone."""
        parts = prefill_seconds(self.c, 1.0)
        return np.asarray(sum(part * self.scale[..., index] for part, index in zip(parts, _PREFILL, strict=True)))

    @property
    def slots(self) -> Array:
        """Largest number of running sequences: the batch limit, or the capacity of the KV cache."""
        return np.asarray(np.maximum(1.0, np.minimum(fitting_sequences(self.c), self.c.max_num_seqs * self.c.dp)))

    @property
    def limited_by_cache(self) -> Array:
        """Whether the KV cache limits `slots`."""
        return np.asarray(fitting_sequences(self.c) < self.c.max_num_seqs * self.c.dp)

    def cache_use(self, running: Array) -> Array:
        """Return the share of the KV cache in use by `running` sequences."""
        return np.asarray(np.minimum(1.0, running * held_tokens(self.c) / np.maximum(kv_tokens(self.c), 1.0)))

    def memory_share(self, running: Array) -> Array:
        """Return the share of the listed memory bandwidth used while busy."""
        return np.asarray(seconds(self.c, running)[:, _MEMORY].sum(axis=1) / self.token_s(running))

    def gemm_share(self, running: Array) -> Array:
        """Return the share of the listed FLOP/s used while busy."""
        return np.asarray(seconds(self.c, running)[:, _GEMM].sum(axis=1) / self.token_s(running))

    def running(self, tok_s: Array) -> tuple[Array, Array]:
        """Return (mean running sequences, its share of the slots' rate) at this many generated tokens/s.

        Arrivals are random: the mean number of running sequences is the tokens per second times the seconds of a token
        in the batch that runs while there is any. It is at most `slots`."""
        slots = self.slots
        peak = slots / self.token_s(slots)
        low, high = np.full(len(slots), -14.0), np.log(slots)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            offered = np.exp(middle)
            enough = offered >= tok_s * self.token_s(np.minimum(slots, while_any(offered)))
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(tok_s > 0, np.minimum(np.exp(high), slots), 0.0), tok_s / peak


def while_any(offered: Array) -> Array:
    """Return the mean of a Poisson number of requests given that there is at least one."""
    return np.asarray(offered / np.maximum(-np.expm1(-offered), 1e-9))


def engine(
    deployment: Deployment, truth: Truth, market: Market, prompt_len: Array, generated_len: Array, cached: Array
) -> SimulatedEngine:
    """Return the true speed of a deployment at instants with these mean lengths and cached shares."""
    n = len(prompt_len)
    candidate = resolve([deployment], [Load(1.0, 1.0, 1.0, 1.0)], market)
    columns = candidate.take(np.zeros(n, dtype=np.intp))
    cached_share = 0.0 if deployment.enable_prefix_caching is False else cached
    columns = replace(
        columns,
        prompt_len=prompt_len,
        generated_len=generated_len,
        cached_share=np.broadcast_to(np.asarray(cached_share, dtype=float), (n,)).copy(),
    )
    return SimulatedEngine(columns, np.exp(efficiency().log_scale(candidate.tags)[0] + truth.shift(deployment)))


PATIENCE_S = 45.0
"""Longest wait of a client in the queue; after it the request is lost."""
PREEMPTED = 0.12
"""Share of requests preempted while the KV cache limits the batch and all slots are in use."""
HARDLY_ANY = 1e-9


@dataclass(frozen=True, slots=True)
class EngineCourse:
    """Operation of one engine, step by step. Rates and means are over the whole step unless noted."""

    ts: Ints
    step_s: int
    requests: Floats
    """Finished requests."""
    lost: Floats
    """Requests of clients that stopped waiting."""
    prompt_tokens: Floats
    cached_tokens: Floats
    generated_tokens: Floats
    busy: Floats
    """Share of the step."""
    running: Floats
    waiting: Floats
    cache_use: Floats
    preemptions: Floats
    tpot_s: Floats
    ttft_s: Floats
    queue_s: Floats
    e2e_s: Floats
    memory_share: Floats
    """Share of the listed bandwidth, while busy."""
    gemm_share: Floats
    """Share of the listed FLOP/s, while busy."""
    prefill_share: Floats
    """Share of busy time."""


def course(
    served_by: SimulatedEngine, ts: Ints, step_s: int, arrivals: Floats, silent: Floats | None = None
) -> EngineCourse:
    """Return the operation of an engine under the requests of each step.

    `silent`: share of each step in which the engine is stuck: it serves nothing, and requests keep running.
    """
    prompt_len, generated_len, cached = served_by.c.prompt_len, served_by.c.generated_len, served_by.c.cached_share
    slots = served_by.slots
    peak_s = slots / served_by.token_s(slots) / generated_len  # requests a second of a full batch
    served, waiting, lost = _queued(arrivals / step_s, peak_s, slots, step_s)
    offered, _ = served_by.running(served * generated_len)
    together = np.minimum(slots, np.maximum(1.0, while_any(np.maximum(offered, HARDLY_ANY))))
    busy = np.minimum(1.0, np.where(offered >= slots, 1.0, -np.expm1(-offered)))
    token_s = served_by.token_s(together)
    prefill_s = served_by.prefill_s()
    queue_s = waiting / np.maximum(served, HARDLY_ANY)
    awake = 1.0 if silent is None else 1.0 - silent
    full = np.logical_and(served_by.limited_by_cache, offered > 0.85 * slots)
    n = np.round(served * step_s * awake)
    return EngineCourse(
        ts=ts,
        step_s=step_s,
        requests=n,
        lost=np.round(lost),
        prompt_tokens=np.round(n * prompt_len),
        cached_tokens=np.round(n * prompt_len * cached),
        generated_tokens=np.round(n * generated_len),
        busy=np.where(n > 0, busy * awake, 0.0),
        running=np.where(n > 0, offered * awake, 0.0) + (0.0 if silent is None else silent * np.minimum(3.0, slots)),
        waiting=np.where(n > 0, waiting * awake, 0.0),
        cache_use=served_by.cache_use(offered) * (offered > 0),
        preemptions=np.round(PREEMPTED * n * full),
        tpot_s=token_s,
        ttft_s=queue_s + prefill_s + token_s,
        queue_s=queue_s,
        e2e_s=queue_s + prefill_s + generated_len * token_s,
        memory_share=served_by.memory_share(together),
        gemm_share=served_by.gemm_share(together),
        prefill_share=np.minimum(0.95, prefill_s * served / np.maximum(busy, HARDLY_ANY)),
    )


def _queued(rate: Floats, peak: Floats, slots: Floats, step_s: int) -> tuple[Floats, Floats, Floats]:
    """Return (requests served per second, mean requests waiting, requests lost) of each step.

    Below the peak the queue is that of many servers (Sakasegawa, 1977); above it the queue grows until clients leave.
    """
    load = np.minimum(rate / peak, 0.995)
    short = np.minimum(load ** np.sqrt(2 * (slots + 1)) / (1 - load), 3 * slots)
    served, lost = np.minimum(rate, peak), np.zeros(len(rate))
    longest = PATIENCE_S * peak
    waiting = np.minimum(short, longest)
    backlog = 0.0
    for step in np.flatnonzero(rate >= 0.995 * peak):
        backlog_before = backlog if step and rate[step - 1] >= 0.995 * peak[step - 1] else 0.0
        backlog = min(backlog_before + max(0.0, rate[step] - peak[step]) * step_s, longest[step])
        lost[step] = max(0.0, backlog_before + (rate[step] - peak[step]) * step_s - backlog)
        waiting[step] = max(waiting[step], (backlog_before + backlog) / 2)
    return served, waiting, lost


COLD_C, HOT_C = 29.0, 50.0
"""Temperature at 0 W, and the increase from 0 W to the power limit."""


@dataclass(frozen=True, slots=True)
class DeviceReadings:
    """Readings of one device: means over each step."""

    util: Floats
    memory_bytes: Floats
    power_w: Floats
    sm_clock_mhz: Floats
    temperature_c: Floats
    sm_active: Floats
    sm_occupancy: Floats
    tensor_active: Floats
    dram_active: Floats
    nvlink_mib_s: Floats


def working(
    rng: np.random.Generator,
    course: EngineCourse,
    accelerator: Accelerator,
    allocated_bytes: float,
    ranks: int,
    clock_mhz: float,
    watts: float,
) -> DeviceReadings:
    """Return the readings of one device of an engine; `watts` is its power as a multiple of the curve."""
    limit = accelerator.tdp_w or 300.0
    curve = CandidateWatts(
        np.array(idle_w(accelerator.name, limit)), np.array(limit), np.array(full_w(accelerator.name, limit))
    )
    at_work = np.minimum(limit, busy_w(curve, np.clip(course.gemm_share, 1e-4, 1.0)) * watts)
    busy = course.busy
    power = float(curve.idle_w) * 1.35 * (1 - busy) + at_work * busy
    power = np.minimum(limit, power * (1 + 0.015 * rng.standard_normal(len(busy))))
    jitter = 1 + 0.02 * rng.standard_normal(len(busy))
    tokens_s = (course.generated_tokens + course.prompt_tokens - course.cached_tokens) / course.step_s
    return DeviceReadings(
        util=np.clip(busy * 0.985 * jitter, 0, 1),
        memory_bytes=np.full(len(busy), allocated_bytes),
        power_w=power,
        sm_clock_mhz=clock_mhz * np.clip(1 - 0.12 * np.maximum(0.0, power / limit - 0.85) / 0.15, 0.6, 1),
        temperature_c=COLD_C + HOT_C * power / limit,
        sm_active=np.clip(busy * (0.55 + 0.4 * course.memory_share) * jitter, 0, 1),
        sm_occupancy=np.clip(busy * 0.28 * jitter, 0, 1),
        tensor_active=np.clip(busy * course.gemm_share * jitter, 0, 1),
        dram_active=np.clip(busy * course.memory_share * jitter, 0, 1),
        nvlink_mib_s=tokens_s * (0.05 if ranks > 1 else 0.0),
    )


def idling(rng: np.random.Generator, steps: int, accelerator: Accelerator, clock_mhz: float) -> DeviceReadings:
    """Return the readings of an unallocated device."""
    limit = accelerator.tdp_w or 300.0
    power = idle_w(accelerator.name, limit) * (1 + 0.01 * rng.standard_normal(steps))
    nothing = np.zeros(steps)
    return DeviceReadings(
        util=nothing,
        memory_bytes=np.full(steps, 6.1e8),
        power_w=power,
        sm_clock_mhz=np.full(steps, 0.18 * clock_mhz),
        temperature_c=COLD_C + HOT_C * power / limit,
        sm_active=nothing,
        sm_occupancy=nothing,
        tensor_active=nothing,
        dram_active=nothing,
        nvlink_mib_s=nothing,
    )
