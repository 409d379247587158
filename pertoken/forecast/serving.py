"""The serving model: throughput, latency and concurrency of a deployment under a load, with ranges.

Ranges are (low, likely, high). An uncalibrated one spans what the pessimistic and the optimistic constants give, and
at least the error measured on public data; a calibrated one rests on what the host itself measured.
"""

import math
from dataclasses import dataclass

from pertoken.catalog.market import Market
from pertoken.deployment import Deployment
from pertoken.forecast.capacity import capacity
from pertoken.forecast.efficiency import Efficiency, defaults, efficiencies, width
from pertoken.forecast.served import Abstained, Served, resolve
from pertoken.forecast.step import decode_step_s, prefill_s

Range = tuple[float, float, float]
"""Low, likely, high."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a deployment: token rates over all time, lengths per request, concurrency while busy."""

    generated_tok_s: float
    prompt_len: float
    generated_len: float
    running: float
    waiting: float = 0.0
    cached_share: float = 0.0
    """Prompt tokens found in the prefix cache, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the host's own measurements say of the model: shared by before and after, so that a ratio is honest."""

    log_time: float = 0.0
    """Added to the logarithm of every step time."""
    capacity: float = 1.0
    """Factor on the sequences that fit; at least what was seen running."""
    measured: bool = False


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


def forecast(deployment: Deployment, load: Load, market: Market, calibration: Calibration | None = None) -> Forecast:
    """Steady states of the deployment under the load.

    Raises Abstained if its shape, dtype or accelerator is not known.
    """
    served = resolve(deployment, market)
    known = calibration or Calibration()
    assumptions = _assumptions(deployment)
    likely = efficiencies()[1]
    room = capacity(deployment, served, likely)
    if room.refusal is not None:
        return Forecast(0.0, refusal=room.refusal, assumptions=assumptions)
    fitting = max(1.0, room.kv_tokens / _context(load) * known.capacity)
    most = min(fitting, deployment.max_num_seqs or defaults().max_num_seqs)
    asked = max(1.0, min(load.running + load.waiting, most))
    model = _Model(served, load, known)
    at_demand = model.concurrency_for(load.generated_tok_s, most)
    return Forecast(
        max_concurrency=most,
        running=model.point(asked),
        saturated=model.point(most),
        demand=None if at_demand is None else model.point(at_demand),
        assumptions=assumptions,
    )


def calibrate(
    deployment: Deployment, load: Load, market: Market, busy_tok_s: float, tpot_ms: float | None = None
) -> Calibration:
    """One factor on all times that makes the model agree with what was measured at the load's running requests.

    `busy_tok_s`: generated tokens per second of busy time. With `tpot_ms` the factor is the geometric mean of both.
    Raises Abstained as `forecast` does, ValueError for a rate that is not above 0.
    """
    if busy_tok_s <= 0 or (tpot_ms is not None and tpot_ms <= 0):
        raise ValueError("calibration needs rates and times above 0")
    served = resolve(deployment, market)
    running = max(1.0, load.running)
    likely = efficiencies()[1]
    rate, tpot = _Model(served, load, Calibration()).steady(running, likely)
    errors = [math.log(rate / busy_tok_s)]
    if tpot_ms is not None:
        errors.append(math.log(tpot_ms / 1000 / tpot))
    fitting = capacity(deployment, served, likely).kv_tokens / _context(load)
    return Calibration(
        log_time=sum(errors) / len(errors),
        capacity=max(1.0, running / fitting) if fitting > 0 else 1.0,
        measured=True,
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A deployment before and after a change, under one load and one calibration."""

    ratio: Range
    """Generated tokens/s after over before, at the requests that are there: running ones, and waiting ones that
    then fit."""
    tpot_ms_now: float
    """As the calibrated model has it at the running requests."""
    after: Forecast


def compare(
    now: Deployment, to: Deployment, load: Load, market: Market, calibration: Calibration | None = None
) -> Change | Forecast:
    """What a change does to the rate of a deployment; the forecast with its refusal if it would not start then.

    The interval is the error measured for changes of these kinds. Raises Abstained as `forecast` does, and for a
    change of a knob the serving model does not know.
    """
    kinds = _kinds(now, to)
    known = calibration or Calibration()
    before, tpot_s = _Model(resolve(now, market), load, known).steady(max(1.0, load.running), efficiencies()[1])
    after = forecast(to, load, market, known)
    if after.running is None:
        return after
    likely = after.running.tok_s[1] / before
    spread = math.exp(width(kinds))
    return Change((likely / spread, likely, likely * spread), 1000 * tpot_s, after)


_KINDS = {
    "model": "model",
    "accelerator": "move_accelerator",
    "tp": "parallelism",
    "pp": "parallelism",
    "dp": "parallelism",
    "kv_dtype": "kv_dtype",
    "max_num_seqs": "batch",
    "gpu_memory_utilization": "batch",
    "max_model_len": "batch",
}
_NO_EFFECT = frozenset({"purchase"})


def _kinds(now: Deployment, to: Deployment) -> frozenset[str]:
    changes = now.changes_to(to)
    kinds = {_KINDS[knob] for knob in changes if knob in _KINDS}
    if "weight_dtype" in changes:
        kinds.add(f"quantize_{to.weight_dtype}")
    unknown = [knob for knob in changes if knob not in _KINDS and knob not in _NO_EFFECT and knob != "weight_dtype"]
    if unknown:
        raise Abstained(f"the serving model does not know what {unknown[0]} does: try it for some hours")
    if to.weight_dtype not in ("fp8", "int8", "int4", "fp4") and "weight_dtype" in changes:
        raise Abstained(f"no measured pairs for a change of weights to {to.weight_dtype}")
    return frozenset(kinds)


@dataclass(frozen=True, slots=True)
class _Model:
    served: Served
    load: Load
    calibration: Calibration

    def steady(self, concurrency: float, efficiency: Efficiency) -> tuple[float, float]:
        """Generated tokens/s and seconds per token; each token pays its share of the prompt's prefill."""
        batch = max(1.0, concurrency / self.served.dp)
        computed = self.load.prompt_len * (1 - self.load.cached_share)
        prefill = prefill_s(self.served, efficiency, computed) / max(1.0, self.load.generated_len)
        token_s = decode_step_s(self.served, efficiency, batch, _context(self.load)) + batch * prefill
        token_s *= math.exp(self.calibration.log_time)
        return concurrency / token_s, token_s

    def point(self, concurrency: float) -> Point:
        rates, times = zip(*(self.steady(concurrency, each) for each in efficiencies()), strict=True)
        computed = self.load.prompt_len * (1 - self.load.cached_share)
        scale = math.exp(self.calibration.log_time) * self.served.pp
        firsts = [prefill_s(self.served, each, computed) * scale + times[1] for each in efficiencies()]
        return Point(
            concurrency,
            self._range(rates),
            self._range([1000 * each for each in reversed(times)]),
            self._range([1000 * each for each in reversed(firsts)]),
        )

    def concurrency_for(self, tok_s: float, most: float) -> float | None:
        """Fewest sequences at which it likely generates this much; the rate grows with every sequence."""
        likely = efficiencies()[1]
        if self.steady(most, likely)[0] < tok_s:
            return None
        low, high = min(1.0, most), most
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self.steady(middle, likely)[0] >= tok_s else (middle, high)
        return high

    def _range(self, values: tuple[float, ...] | list[float]) -> Range:
        low, likely, high = values
        if self.calibration.measured:
            spread = math.exp(width(["batch"]))
            return likely / spread, likely, likely * spread
        spread = math.exp(width(["absolute"]))
        return min(low, likely / spread), likely, max(high, likely * spread)


def _context(load: Load) -> float:
    """Mean tokens of a running sequence: its prompt, and half of what it will have generated."""
    return max(1.0, load.prompt_len + load.generated_len / 2)


def _assumptions(deployment: Deployment) -> tuple[str, ...]:
    said = []
    if deployment.gpu_memory_utilization is None:
        said.append(f"gpu_memory_utilization {defaults().gpu_memory_utilization:g} (not seen)")
    if deployment.max_num_seqs is None:
        said.append(f"max_num_seqs {defaults().max_num_seqs} (not seen)")
    if (deployment.tp, deployment.pp, deployment.dp) == (None, None, None) and len(deployment.device_ids) > 1:
        said.append(f"its {len(deployment.device_ids)} devices are tensor-parallel ranks (layout not seen)")
    return tuple(said)
