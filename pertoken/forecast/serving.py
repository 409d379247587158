"""The serving model: throughput, latency and concurrency of a deployment under a load, with ranges.

Ranges are (low, likely, high) of an 80 % interval. An uncalibrated one is as wide as single deployments were off in
public data; a calibrated one rests on what the host itself measured.
"""

import math
from dataclasses import dataclass

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.calibration import Posterior, activity, first_token, per_token, posterior, ratio
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import filling_sequences, fitting_sequences, free_bytes, kv_tokens, weight_bytes
from pertoken.forecast.efficiency import (
    absolute_half_width,
    attenuation,
    deviation,
    efficiency,
    half_width,
    tag_names,
    transfer,
    unpacks_cache,
    with_unpacked,
)
from pertoken.forecast.formats import defaults
from pertoken.forecast.second_opinion.opinion import Opinion, Ratio, Said, blend, operating_point
from pertoken.forecast.served import Abstained, Load, resolve
from pertoken.forecast.steady import first_token_s, steady
from pertoken.forecast.terms import TERMS
from pertoken.state.deployment import Deployment
from pertoken.units import format_bytes

__all__ = [
    "Abstained",
    "Calibration",
    "Change",
    "Forecast",
    "Load",
    "Point",
    "Range",
    "calibrate",
    "compare",
    "forecast",
]

Range = tuple[float, float, float]
"""Low, likely, high."""
BISECTIONS = 60
SOME_WAIT = 0.1
"""Waiting requests from which a measured TTFT says more of the queue than of prefill."""
MUCH_OF_CACHE = 0.3
"""Use of the KV cache from which it tells how many sequences fill it: below, fixed blocks and prefixes blur it."""
Z_80 = 1.2816
"""Standard deviations of a normal distribution on either side that hold 80 % of it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a host's own measurements say of the model: shared by before and after, so that a ratio is honest."""

    origin: Deployment | None = None
    """Where it was measured."""
    mean: tuple[float, ...] = ()
    """Deviations of log times, in the order of `Deviation.names`; empty where nothing was measured."""
    covariance: tuple[tuple[float, ...], ...] = ()
    capacity: float = 1.0
    """Factor on the sequences that fit; at least what was seen running."""
    log_time: float = 0.0
    """Logarithm of the measured step time over the uncalibrated one."""

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return self.origin is not None

    @property
    def posterior(self) -> Posterior:
        """As one row; the prior itself where nothing was measured."""
        prior = deviation()
        if self.origin is None:
            return Posterior(np.zeros((1, len(prior.sd))), np.diag(prior.sd**2)[None])
        return Posterior(np.array([self.mean]), np.array([self.covariance]))

    def kept(self, deployment: Deployment) -> Array:
        """Share of each deviation that holds for a deployment: the further from where it was measured, the less."""
        return transfer(kinds_of(self.origin, deployment) if self.origin is not None else ())

    def shift_for(self, deployment: Deployment) -> Array:
        """What is added to the log times of the terms of a deployment, shape (1, number of `TERMS`)."""
        return np.asarray(self.posterior.mean * self.kept(deployment) @ deviation().groups)


@dataclass(frozen=True, slots=True)
class Point:
    """Steady state at one concurrency."""

    concurrency: float
    tok_s: Range
    """Generated tokens/s of the whole deployment."""
    tpot_ms: Range
    ttft_ms: Range
    """Without time in the queue."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a deployment would do under a load. `refusal` says why it would not start; points are None then."""

    max_concurrency: float
    """Sequences it can run at once: KV cache and max_num_seqs, whichever is less."""
    running: Point | None = None
    """At the load's running and waiting requests, as far as they fit."""
    saturated: Point | None = None
    """At its greatest concurrency."""
    demand: Point | None = None
    """At the load's generated tokens/s; None if even saturated it is not likely to hold them."""
    refusal: str | None = None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A deployment before and after a change, under one load and one calibration."""

    ratio: Range
    """Generated tokens/s after over before, at the requests that are there: running ones, and waiting ones that
    then fit."""
    tpot_ms_now: float
    """As the calibrated model has it at the running requests."""
    after: Forecast
    heard: Said | None = None
    """What the second opinion said, where one was asked; it is blended in already."""


def forecast(deployment: Deployment, load: Load, market: Market, calibration: Calibration | None = None) -> Forecast:
    """Steady states of the deployment under the load.

    Raises Abstained if its shape, dtype, engine or accelerator is not known.
    """
    candidate = resolve([deployment], [load], market)
    known = calibration or Calibration()
    assumptions = _assumptions(deployment, candidate)
    refusal = _refusal(deployment, candidate, market)
    if refusal is not None:
        return Forecast(0.0, refusal=refusal, assumptions=assumptions)
    model = _Model(candidate, known.shift_for(deployment), known.measured)
    most = concurrency_limit(candidate, known)
    asked = max(1.0, min(load.running + load.waiting, most))
    at_demand = model.concurrency_for(load.generated_tok_s, most)
    return Forecast(
        max_concurrency=most,
        running=model.point(asked),
        saturated=model.point(most),
        demand=None if at_demand is None else model.point(at_demand),
        assumptions=assumptions,
    )


def concurrency_limit(candidate: Candidates, calibration: Calibration) -> float:
    """Sequences that one candidate which starts runs at once: as many as fit, at most `max_num_seqs`."""
    fitting = max(1.0, float(fitting_sequences(candidate)[0]) * calibration.capacity)
    return min(fitting, float(candidate.max_num_seqs[0] * candidate.dp[0]))


def calibrate(
    deployment: Deployment,
    load: Load,
    market: Market,
    busy_tok_s: float,
    tpot_ms: float | None = None,
    *,
    ttft_ms: float | None = None,
    kv_use: float | None = None,
    memory_active: float | None = None,
    products_active: float | None = None,
) -> Calibration:
    """The deviations from the fitted table that make the model agree with what was measured while busy.

    All at the load's running requests, None where not measured. `busy_tok_s`: generated tokens per second of busy
    time. `tpot_ms`: milliseconds per token after the first. `ttft_ms`: milliseconds to the first token, used only
    where nobody waited. `kv_use`: share of the KV cache in use. `memory_active`, `products_active`: share of the
    listed memory bandwidth and rate of products used, by the driver's counters (DRAM and tensor activity) or the
    engine's bytes and FLOPs. Raises Abstained as `forecast` does, ValueError for one that is not above 0.
    """
    if any(
        each is not None and each <= 0
        for each in (busy_tok_s, tpot_ms, ttft_ms, kv_use, memory_active, products_active)
    ):
        raise ValueError("calibration needs rates, times and shares above 0")
    candidate = resolve([deployment], [load], market)
    running = np.array([max(1.0, load.running)])
    token_s = running / busy_tok_s
    prior, table = deviation(), efficiency()
    observed = [per_token(prior, token_s, running)]
    if tpot_ms is not None:
        observed.append(per_token(prior, np.array([tpot_ms / 1000]), running))
    if ttft_ms is not None and load.waiting < SOME_WAIT:
        observed.append(first_token(prior, candidate, np.array([ttft_ms / 1000])))
    for share, terms in ((memory_active, "memory"), (products_active, "products")):
        if share is not None:
            observed.append(activity(candidate, table, token_s, running, np.array([share]), terms))
    found = posterior(candidate, table, prior, observed)
    expected = steady(candidate, table, running).token_s[0]
    explained = steady(candidate, table, running, found.mean @ prior.groups).token_s[0]
    fitting, filling = float(fitting_sequences(candidate)[0]), float(filling_sequences(candidate)[0])
    return Calibration(
        origin=deployment,
        mean=tuple(map(float, found.mean[0])),
        covariance=tuple(tuple(map(float, row)) for row in found.covariance[0]),
        capacity=_capacity(float(running[0]), fitting, filling, kv_use),
        log_time=float(np.log(explained / expected)),
    )


def _capacity(running: float, fitting: float, filling: float, kv_use: float | None) -> float:
    """Factor on the sequences that fit: a well-used cache tells how many fill it; else at least those seen running."""
    if fitting <= 0:
        return 1.0
    if kv_use is not None and kv_use >= MUCH_OF_CACHE:
        return running / kv_use / filling
    return max(1.0, running / fitting)


def compare(
    now: Deployment,
    to: Deployment,
    load: Load,
    market: Market,
    calibration: Calibration | None = None,
    opinion: Opinion | None = None,
) -> Change | Forecast:
    """What going from `now` to `to` does under the load: the refusal if it would not start then.

    The interval is the error measured for changes of these kinds. A second `opinion` is blended in where it has one.
    Raises Abstained as `forecast` does, and for a change of a knob the serving model does not know.
    """
    kinds = _known_kinds(now, to, load)
    known = calibration or Calibration()
    here, there = resolve([now], [load], market), resolve([to], [load], market)
    kinds = with_unpacked(kinds, here, there)
    after = forecast(to, load, market, known)
    if after.running is None:
        return after
    running = (np.array([max(1.0, load.running)]), np.array([after.running.concurrency]))
    kept = (known.kept(now), known.kept(to))
    found = ratio(here, there, efficiency(), deviation(), running, known.posterior, kept)
    log_ratio = float(attenuation(kinds) * found.log_ratio[0])
    said = Ratio(log_ratio, float(half_width(kinds, found.log_sd)[0]) / Z_80)
    heard = None
    if opinion is not None and not kinds & UNKNOWN_TO_TABLES:
        points = [operating_point(each, load, float(at[0])) for each, at in zip((now, to), running, strict=True)]
        seen = float(found.before.tok_s[0]) if known.measured else None
        heard = opinion.log_ratio(*points)
        said = blend(said, heard, kinds, seen)
    likely, spread = math.exp(said.log), math.exp(Z_80 * said.log_sd)
    return Change((likely / spread, likely, likely * spread), 1000 * float(found.before.token_s[0]), after, heard)


_KINDS = {
    "model": "smaller_model",
    "placement.accelerator": "move_gpu",
    "tp": "tp_change",
    "pp": "tp_change",
    "dp": "tp_change",
    "kv_dtype": "kv_fp8",
    "max_num_seqs": "raise_batch",
    "gpu_memory_utilization": "raise_batch",
    "max_model_len": "raise_batch",
    "max_num_batched_tokens": "chunked_prefill",
    "enable_chunked_prefill": "chunked_prefill",
    "enable_prefix_caching": "prefix_cache",
    "num_speculative_tokens": "speculative",
}
UNKNOWN_TO_TABLES = frozenset({"chunked_prefill", "kv_fp8_unpacked", "prefix_cache", "speculative"})
"""What kernel tables are not asked about, so that they would say that nothing changes."""
_QUANTIZED = ("fp8", "int8", "int4", "fp4")


def kinds_of(now: Deployment, to: Deployment) -> frozenset[str]:
    """Kinds of change between two deployments, in the words of the efficiency table; empty for none."""
    changes = _changes(now, to)
    kinds = {_KINDS[knob] for knob in changes if knob in _KINDS}
    if "weight_dtype" in changes:
        narrow = to.weight_dtype if to.weight_dtype in _QUANTIZED else now.weight_dtype
        kinds.add(f"quantize_{narrow}")
    return frozenset(kinds)


def _changes(now: Deployment, to: Deployment) -> frozenset[str]:
    """Name the knobs that differ, and the accelerator; no other part of a placement changes the speed."""
    moved = now.accelerator != to.accelerator
    return frozenset(now.knob_changes(to)) | ({"placement.accelerator"} if moved else frozenset())


def _known_kinds(now: Deployment, to: Deployment, load: Load) -> frozenset[str]:
    changes = _changes(now, to)
    if "enable_prefix_caching" in changes and not now.enable_prefix_caching:
        raise Abstained(
            "which share of prompts repeats is not measured while the prefix cache is off: switch it on for some hours"
        )
    if "num_speculative_tokens" in changes and (load.acceptance is None or not now.num_speculative_tokens):
        raise Abstained(
            "which share of drafted tokens is accepted is not measured: let the engine draft for some hours, with "
            "metrics that count drafts"
        )
    unknown = [knob for knob in changes if knob not in _KINDS and knob != "weight_dtype"]
    if unknown:
        raise Abstained(f"the serving model does not know what {unknown[0]} does: try it for some hours")
    if "weight_dtype" in changes and not {now.weight_dtype, to.weight_dtype} & set(_QUANTIZED):
        raise Abstained(f"no measured pairs for a change of weights to {to.weight_dtype}")
    return kinds_of(now, to)


@dataclass(frozen=True, slots=True)
class _Model:
    candidate: Candidates
    shift: Array
    measured: bool

    def steady(self, concurrency: float) -> tuple[float, float]:
        """Generated tokens/s and seconds per token; each token pays its share of the prompts' prefill."""
        state = steady(self.candidate, efficiency(), np.array([concurrency]), self.shift)
        return float(state.tok_s[0]), float(state.token_s[0])

    def point(self, concurrency: float) -> Point:
        rate, token_s = self.steady(concurrency)
        first_s = float(first_token_s(self.candidate, efficiency(), self.shift)[0]) + token_s
        return Point(concurrency, self._range(rate), self._range(1000 * token_s), self._range(1000 * first_s))

    def concurrency_for(self, tok_s: float, most: float) -> float | None:
        """Fewest sequences at which it likely generates this much; the rate grows with every sequence."""
        if self.steady(most)[0] < tok_s:
            return None
        low, high = min(1.0, most), most
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.steady(middle)[0] >= tok_s else (middle, high)
        return high

    def _range(self, likely: float) -> Range:
        spread = math.exp(
            float(half_width(["raise_batch"], deviation().noise)) if self.measured else absolute_half_width()
        )
        return likely / spread, likely, likely * spread


def _refusal(deployment: Deployment, candidate: Candidates, market: Market) -> str | None:
    """Why the engine would not start: one with a `max_model_len` refuses if one such sequence does not fit."""
    accelerator = market.accelerator(deployment.accelerator)
    if free_bytes(candidate)[0] <= 0:
        usable = float(candidate.memory_bytes[0] * candidate.memory_share[0])
        return (
            f"weights need {format_bytes(float(weight_bytes(candidate)[0]))} of each "
            f"{accelerator.name if accelerator else 'device'}, and the engine may use {format_bytes(usable)}, "
            f"{format_bytes(defaults().reserved_bytes)} of it for itself"
        )
    tokens, longest = float(kv_tokens(candidate)[0] / candidate.dp[0]), deployment.max_model_len
    if longest is not None and tokens < longest:
        return (
            f"the KV cache would hold {tokens:.0f} tokens, fewer than max_model_len {longest}: "
            "a shorter max_model_len would start"
        )
    return None


def _assumptions(deployment: Deployment, candidate: Candidates) -> tuple[str, ...]:
    said = []
    if deployment.kv_dtype is None and candidate.kv_bytes[0] < 2:
        said.append(f"kv_dtype fp8, as published checkpoints in {deployment.weight_dtype} have it (not seen)")
    if unpacks_cache(candidate)[0]:
        slower = math.exp(efficiency().by_tag[tag_names().index("kv-fp8-unpacked"), TERMS.index("kv_cache")])
        said.append(
            f"{deployment.accelerator} does not convert FP8: reading its cache is taken to last {slower:.0f} times as "
            "long, as fitted to the few kernels measured"
        )
    if deployment.gpu_memory_utilization is None:
        said.append(f"gpu_memory_utilization {defaults().gpu_memory_utilization:g} (not seen)")
    if deployment.max_num_seqs is None:
        said.append(f"max_num_seqs {defaults().max_num_seqs} (not seen)")
    if (deployment.tp, deployment.pp, deployment.dp) == (None, None, None) and len(deployment.device_ids) > 1:
        said.append(f"its {len(deployment.device_ids)} devices are tensor-parallel ranks (layout not seen)")
    return tuple(said)
