"""The serving model: throughput, latency and concurrency of a deployment under a load, with ranges.

Ranges are (low, likely, high) of an 80 % interval. An uncalibrated one is as wide as single deployments were off in
public data; a calibrated one rests on what the host itself measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from pertoken.catalog.market import CPU_ARCH, Market
from pertoken.forecast.calibration import Posterior, ratio
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import fitting_sequences, free_bytes, kv_tokens, weight_bytes
from pertoken.forecast.efficiency import (
    MAX_HIGH_OVER_LOW,
    absolute_half_width,
    attenuation,
    deviation,
    efficiency,
    half_width,
    is_too_wide,
    tag_names,
    unpacks_cache,
    with_unpacked,
)
from pertoken.forecast.formats import defaults
from pertoken.forecast.host import Calibration, calibrate
from pertoken.forecast.kinds import UNKNOWN_TO_TABLES, known_kinds
from pertoken.forecast.search import crossing
from pertoken.forecast.second_opinion.opinion import Opinion, OpinionResult, Ratio, blend, operating_point
from pertoken.forecast.served import Abstained, Load, Row, resolve_each, stack_rows
from pertoken.forecast.steady import Steady, first_token_scaled, steady_scaled, time_scale
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
Z_80 = 1.2816
"""Standard deviations of a normal distribution on either side that hold 80 % of it."""


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
    """Forecast of a deployment under a load. `refusal` is why it would not start; points are None then."""

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
    """Generated tokens/s after over before, at the present requests: running ones, and waiting ones that
    then fit."""
    tpot_ms_now: float
    """As the calibrated model has it at the running requests."""
    after: Forecast
    heard: OpinionResult | None = None
    """The second opinion, where one was requested; it is blended in already."""


def forecast(deployment: Deployment, load: Load, market: Market, calibration: Calibration | None = None) -> Forecast:
    """Steady states of the deployment under the load.

    Raises Abstained if its shape, dtype, engine or accelerator is not known.
    """
    (row,) = resolve_each([(deployment, load)], market)
    if isinstance(row, Abstained):
        raise row
    (one,) = _forecasts([deployment], [load], stack_rows([row]), market, [calibration or Calibration()])
    return one


def forecast_all(
    asked: Sequence[tuple[Deployment, Load]], market: Market, calibration: Calibration
) -> list[Forecast | Abstained]:
    """Return `forecast` of each, side by side; `Abstained` in place of a result."""
    rows = resolve_each(asked, market)
    known = [(question, row) for question, row in zip(asked, rows, strict=True) if not isinstance(row, Abstained)]
    if not known:
        return [row for row in rows if isinstance(row, Abstained)]
    deployments, loads = [deployment for (deployment, _), _ in known], [load for (_, load), _ in known]
    c = stack_rows([row for _, row in known])
    forecasts = iter(_forecasts(deployments, loads, c, market, [calibration] * len(known)))
    return [row if isinstance(row, Abstained) else next(forecasts) for row in rows]


def _forecasts(
    deployments: Sequence[Deployment],
    loads: Sequence[Load],
    c: Candidates,
    market: Market,
    known: Sequence[Calibration],
) -> list[Forecast]:
    """Forecast deployments side by side; `c` has a row for each."""
    refusals = _refusals(deployments, c, market)
    shift = np.concatenate([calibration.shift_for(to) for calibration, to in zip(known, deployments, strict=True)])
    model = _Model(
        c, shift, [_Interval.of(calibration, to) for calibration, to in zip(known, deployments, strict=True)]
    )
    most = concurrency_limits(c, [calibration.capacity for calibration in known])
    asked = np.maximum(1.0, np.minimum([load.running + load.waiting for load in loads], most))
    wanted = model.concurrency_for(np.array([load.generated_tok_s for load in loads]), most)
    running, saturated = model.points(asked), model.points(most)
    demand = model.points(np.where(np.isnan(wanted), most, wanted))
    return [
        Forecast(0.0, refusal=refusal, assumptions=notes)
        if refusal is not None
        else Forecast(
            max_concurrency=float(most[row]),
            running=running[row],
            saturated=saturated[row],
            demand=None if math.isnan(wanted[row]) else demand[row],
            assumptions=notes,
        )
        for row, (refusal, notes) in enumerate(zip(refusals, _assumptions(deployments, c), strict=True))
    ]


def concurrency_limits(c: Candidates, capacities: Sequence[float]) -> Array:
    """Sequences that candidates which start run at once: as many as fit, at most `max_num_seqs`; shape (n,).

    `capacities`: the factor of each candidate's calibration on the sequences that fit.
    """
    fitting = np.maximum(1.0, fitting_sequences(c) * np.asarray(capacities))
    return np.asarray(np.minimum(fitting, c.max_num_seqs * c.dp))


def compare(
    now: Deployment,
    to: Deployment,
    load: Load,
    market: Market,
    calibration: Calibration | None = None,
    opinion: Opinion | None = None,
) -> Change | Forecast:
    """Return the effect of going from `now` to `to` under the load; the refused forecast if `to` would not start.

    The interval is the error measured for changes of these kinds. A second `opinion` is blended in where it has one.
    Raises Abstained as `forecast` does, and for a change of a knob the serving model does not know.
    """
    (one,) = compare_all([Comparison(now, to, load, calibration or Calibration())], market, opinion)
    if isinstance(one, Abstained):
        raise one
    return one


@dataclass(frozen=True, slots=True)
class Comparison:
    """A change of one deployment under a load and its calibration."""

    now: Deployment
    to: Deployment
    load: Load
    calibration: Calibration


def compare_all(
    asked: Sequence[Comparison], market: Market, opinion: Opinion | None = None
) -> list[Change | Forecast | Abstained]:
    """Compare several changes side by side; `Abstained` in place of a result."""
    resolved_now, resolved_after = (
        resolve_each([(getattr(comparison, end), comparison.load) for comparison in asked], market)
        for end in ("now", "to")
    )
    answers: list[Change | Forecast | Abstained | None] = []
    known: list[tuple[Comparison, frozenset[str], Row, Row]] = []
    for comparison, before, after in zip(asked, resolved_now, resolved_after, strict=True):
        comparison = replace(comparison, calibration=comparison.calibration.for_change(comparison.to))
        try:
            kinds = known_kinds(comparison.now, comparison.to, comparison.load)
            _check_hardware(comparison, market)
        except Abstained as reason:
            answers.append(reason)
            continue
        if isinstance(before, Abstained) or isinstance(after, Abstained):
            answers.append(before if isinstance(before, Abstained) else after)  # type: ignore[arg-type]
            continue
        answers.append(None)
        known.append((comparison, kinds, before, after))
    changes = iter(_compared(known, market, opinion) if known else ())
    return [next(changes) if answer is None else answer for answer in answers]


def _check_hardware(asked: Comparison, market: Market) -> None:
    """Raise Abstained for a move between CPUs and accelerators: measurements on one do not predict the other."""
    devices = [market.accelerator(deployment.accelerator) for deployment in (asked.now, asked.to)]
    if len({device.arch == CPU_ARCH for device in devices if device is not None}) > 1:
        raise Abstained("what a move between CPUs and accelerators gains is not measured: try it for some hours")


def _compared(
    known: Sequence[tuple[Comparison, frozenset[str], Row, Row]], market: Market, opinion: Opinion | None
) -> list[Change | Forecast | Abstained]:
    asked = [comparison for comparison, _, _, _ in known]
    before, after = stack_rows([row[2] for row in known]), stack_rows([row[3] for row in known])
    afterwards = _forecasts(
        [comparison.to for comparison in asked],
        [comparison.load for comparison in asked],
        after,
        market,
        [comparison.calibration for comparison in asked],
    )
    starts = [row for row, forecast in enumerate(afterwards) if forecast.running is not None]
    if not starts:
        return list(afterwards)
    index = np.array(starts)
    candidates_before, candidates_after = before.take(index), after.take(index)
    asked = [asked[row] for row in starts]
    running = (
        np.array([max(1.0, comparison.load.running) for comparison in asked]),
        np.array([point.concurrency for row in starts if (point := afterwards[row].running) is not None]),
    )
    posteriors = [comparison.calibration.posterior for comparison in asked]
    seen = Posterior(
        np.concatenate([posterior.mean for posterior in posteriors]),
        np.concatenate([posterior.covariance for posterior in posteriors]),
    )
    kept = (
        np.stack([comparison.calibration.kept(comparison.now) for comparison in asked]),
        np.stack([comparison.calibration.kept(comparison.to) for comparison in asked]),
    )
    ratios = ratio(candidates_before, candidates_after, efficiency(), deviation(), running, seen, kept)
    verified = np.array([comparison.calibration.has_seen(comparison.now, comparison.to) for comparison in asked])
    disagreement = np.where(verified, 0.0, np.abs(ratios.log_ratio - ratios.table_log_ratio))
    unpacked = unpacks_cache(candidates_before) | unpacks_cache(candidates_after)
    changes: list[Change | Forecast | Abstained] = list(afterwards)
    for place, row in enumerate(starts):
        kinds = with_unpacked(known[row][1], unpacked[place])
        corrected = Ratio(
            float(attenuation(kinds) * ratios.log_ratio[place]),
            float(half_width(kinds, ratios.log_sd[place], disagreement[place])) / Z_80,
        )
        heard = None
        if opinion is not None and not kinds & UNKNOWN_TO_TABLES:
            one = asked[place]
            ends = zip((one.now, one.to), running, strict=True)
            points = [operating_point(deployment, one.load, float(at[place])) for deployment, at in ends]
            heard = opinion.log_ratio(*points)
            corrected = blend(
                corrected, heard, kinds, float(ratios.before.tok_s[place]) if one.calibration.measured else None
            )
        if is_too_wide(Z_80 * corrected.log_sd):
            changes[row] = Abstained(
                f"its 80 % interval would span a factor of more than {MAX_HIGH_OVER_LOW:g}: too little is measured of "
                "such a change; try it for some hours and compare"
            )
            continue
        likely, spread = math.exp(corrected.log), math.exp(Z_80 * corrected.log_sd)
        tpot_ms = 1000 * float(ratios.before.token_s[place])
        changes[row] = Change((likely / spread, likely, likely * spread), tpot_ms, afterwards[row], heard)
    return changes


@dataclass(frozen=True)
class _Model:
    candidates: Candidates
    shift: Array
    """Shape (n, number of `TERMS`)."""
    intervals: "Sequence[_Interval]"

    def steady(self, concurrency: Array) -> Steady:
        """Return the steady state of each candidate; each token pays its share of the prompts' prefill."""
        return steady_scaled(self.candidates, concurrency, self._scale)

    @cached_property
    def _scale(self) -> Array:
        return time_scale(self.candidates, efficiency(), self.shift)

    def points(self, concurrency: Array) -> list[Point]:
        state = self.steady(concurrency)
        token_s, rates = state.token_s, state.tok_s
        first_s = first_token_scaled(self.candidates, self._scale) + token_s
        spreads = [interval.spread(state.shares[row]) for row, interval in enumerate(self.intervals)]
        return [
            Point(
                float(concurrency[row]),
                _range(float(rates[row]), spread),
                _range(1000 * float(token_s[row]), spread),
                _range(1000 * float(first_s[row]), spread),
            )
            for row, spread in enumerate(spreads)
        ]

    def concurrency_for(self, tok_s: Array, most: Array) -> Array:
        """Fewest sequences at which each likely generates this much, NaN where no number does.

        The rate grows with every sequence.
        """

        def spare(running: Array) -> Array:
            return running - tok_s * self.steady(running).token_s

        enough = self.steady(most).tok_s >= tok_s
        return np.where(enough, crossing(spare, np.minimum(1.0, most), most), np.nan)


@dataclass(frozen=True, slots=True)
class _Interval:
    """Interval of a time of one deployment, in log time."""

    calibration: Calibration
    kept: Array
    """Share of each deviation that holds for the deployment."""

    @classmethod
    def of(cls, calibration: Calibration, to: Deployment) -> "_Interval":
        return cls(calibration, calibration.kept(to) if calibration.error is not None else np.empty(0))

    def spread(self, shares: Array) -> float:
        """Return high over likely of a time to which each term contributes these shares."""
        error = self.calibration.error
        if error is None:
            return _spread(self.calibration.measured)
        return math.exp(Z_80 * self.calibration.log_sd(shares, self.kept))


def _range(likely: float, spread: float) -> Range:
    return likely / spread, likely, likely * spread


@cache
def _spread(measured: bool) -> float:
    return math.exp(float(half_width(["raise_batch"], deviation().noise)) if measured else absolute_half_width())


def _refusals(deployments: Sequence[Deployment], c: Candidates, market: Market) -> list[str | None]:
    """Return why engines would not start: one with a `max_model_len` refuses if one such sequence does not fit."""
    free, needed, usable = free_bytes(c), weight_bytes(c), c.memory_bytes * c.memory_share
    tokens = kv_tokens(c) / c.dp
    refusals: list[str | None] = []
    for row, deployment in enumerate(deployments):
        longest, refusal = deployment.max_model_len, None
        if free[row] <= 0:
            accelerator = market.accelerator(deployment.accelerator)
            refusal = (
                f"weights need {format_bytes(float(needed[row]))} of each "
                f"{accelerator.name if accelerator else 'device'}, and the engine may use "
                f"{format_bytes(float(usable[row]))}, {format_bytes(defaults().reserved_bytes)} of it for itself"
            )
        elif longest is not None and tokens[row] < longest:
            refusal = (
                f"the KV cache would hold {tokens[row]:.0f} tokens, fewer than max_model_len {longest}: "
                "a shorter max_model_len would start"
            )
        refusals.append(refusal)
    return refusals


def _assumptions(deployments: Sequence[Deployment], c: Candidates) -> list[tuple[str, ...]]:
    unpacked = unpacks_cache(c)
    return [_assumed(deployment, c.kv_bytes[row] < 2, unpacked[row]) for row, deployment in enumerate(deployments)]


def _assumed(deployment: Deployment, narrow_cache: bool, unpacked: bool) -> tuple[str, ...]:
    assumptions = []
    if deployment.kv_dtype is None and narrow_cache:
        assumptions.append(f"kv_dtype fp8, as published checkpoints in {deployment.weight_dtype} have it (not seen)")
    if unpacked:
        slower = math.exp(efficiency().by_tag[tag_names().index("kv-fp8-unpacked"), TERMS.index("kv_cache")])
        assumptions.append(
            f"{deployment.accelerator} does not convert FP8: reading its cache is taken to last {slower:.0f} times as "
            "long, as fitted to the few kernels measured"
        )
    if deployment.gpu_memory_utilization is None:
        assumptions.append(f"gpu_memory_utilization {defaults().gpu_memory_utilization:g} (not seen)")
    if deployment.max_num_seqs is None:
        assumptions.append(f"max_num_seqs {defaults().max_num_seqs} (not seen)")
    if (deployment.tp, deployment.pp, deployment.dp) == (None, None, None) and len(deployment.device_ids) > 1:
        assumptions.append(f"its {len(deployment.device_ids)} devices are tensor-parallel ranks (layout not seen)")
    return tuple(assumptions)
