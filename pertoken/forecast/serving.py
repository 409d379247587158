"""The serving model: throughput, latency and concurrency of a deployment under a load, with intervals.

An interval is of 80 %. Without a calibration its width is the error of single deployments in public data; with one it
follows from the measurements of the host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.calibration import Posterior, as_measured, loads_of, log_times, ratio
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import fitting_sequences, refusals
from pertoken.forecast.efficiency import (
    Steady,
    deviation,
    efficiency,
    first_token_scaled,
    intervals,
    slowed,
    steady_scaled,
    time_scale,
)
from pertoken.forecast.formats import defaults
from pertoken.forecast.host import LOAD_KINDS, Calibration, carried
from pertoken.forecast.queueing import crossing
from pertoken.forecast.served import (
    Abstained,
    Load,
    Row,
    check_hardware,
    check_kinds,
    encoder_assumptions,
    for_each,
    kinds_of,
    measured_kinds,
    resolve_each,
    stack_rows,
    uncovered_kernels,
)
from pertoken.state.deployment import Deployment

Range = tuple[float, float, float]
"""Low, likely, high."""
Z_80 = 1.2816
"""Half width, in standard deviations, of the central 80 % of a normal distribution."""


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
    """Forecast of a deployment under a load."""

    max_concurrency: float
    """Sequences that it can run at once, limited by its KV cache and by `max_num_seqs`."""
    running: Point | None = None
    """At the running and waiting requests of the load, as far as they fit."""
    saturated: Point | None = None
    """At `max_concurrency`."""
    demand: Point | None = None
    """At the generated tokens/s of the load; None if `saturated` likely generates fewer."""
    refusal: str | None = None
    """Reason why it would not start; all points are None then."""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """A deployment before and after a change, under one load and one calibration."""

    ratio: Range
    """Generated tokens/s after over before, at the running requests and the waiting ones that fit then."""
    tpot_ms_now: float
    """TPOT before the change, from the calibrated model at the running requests."""
    after: Forecast


def forecast(deployment: Deployment, load: Load, market: Market, calibration: Calibration | None = None) -> Forecast:
    """Return the steady states of the deployment under the load.

    Raises Abstained if its shape, dtype, engine or accelerator is not known.
    """
    (row,) = resolve_each([(deployment, load)], market)
    if isinstance(row, Abstained):
        raise row
    (result,) = _forecasts([deployment], [load], stack_rows([row]), market, [calibration or Calibration()])
    return result


def running_tok_s(
    queries: Sequence[tuple[Deployment, Load, Calibration]], market: Market
) -> list[float | Abstained | None]:
    """Return the likely generated tokens/s of each deployment at its running requests, without the rest of `forecast`.

    They are computed together; `Abstained` where something is unknown, None for one that would not start.
    """

    def rates(forecastable: Sequence[tuple[Deployment, Load, Calibration]], c: Candidates) -> list[float | None]:
        deployments, loads, calibrations = zip(*forecastable, strict=True)
        tok_s = _Model(deployments, c, calibrations).steady(_present(loads, _limits(c, calibrations))).tok_s.tolist()
        refused = refusals(deployments, c, market)
        return [rate if refusal is None else None for rate, refusal in zip(tok_s, refused, strict=True)]

    return for_each(queries, itemgetter(0, 1), market, rates)


def _forecasts(
    deployments: Sequence[Deployment],
    loads: Sequence[Load],
    c: Candidates,
    market: Market,
    calibrations: Sequence[Calibration],
) -> list[Forecast]:
    """Forecast deployments together; `c` has a row for each."""
    model, limits = _Model(deployments, c, calibrations), _limits(c, calibrations)
    present = _present(loads, limits)
    needed = model.concurrency_for(np.array([load.generated_tok_s for load in loads]), limits)
    running, saturated = model.points(present), model.points(limits)
    demand = model.points(np.where(np.isnan(needed), limits, needed))
    return [
        Forecast(0.0, refusal=refusal, assumptions=notes)
        if refusal is not None
        else Forecast(
            max_concurrency=float(limits[row]),
            running=running[row],
            saturated=saturated[row],
            demand=None if math.isnan(needed[row]) else demand[row],
            assumptions=notes,
        )
        for row, (refusal, notes) in enumerate(
            zip(refusals(deployments, c, market), _assumptions(deployments, loads, c, market), strict=True)
        )
    ]


def _limits(c: Candidates, calibrations: Sequence[Calibration]) -> Array:
    return concurrency_limits(c, [calibration.capacity for calibration in calibrations])


def _present(loads: Sequence[Load], limits: Array) -> Array:
    """Return the running and waiting requests of each load, as far as they fit."""
    return np.maximum(1.0, np.minimum([load.running + load.waiting for load in loads], limits))


def concurrency_limits(c: Candidates, capacities: Sequence[float]) -> Array:
    """Return the sequences that each candidate runs at once: those that fit, at most `max_num_seqs`; shape (n,).

    `capacities`: factors of the calibrations on the number that fits. The candidates are taken to start.
    """
    fitting = np.maximum(1.0, fitting_sequences(c) * np.asarray(capacities))
    return np.asarray(np.minimum(fitting, c.max_num_seqs * c.dp))


def compare(
    deployment: Deployment, to: Deployment, load: Load, market: Market, calibration: Calibration | None = None
) -> BeforeAfter | Forecast:
    """Return the effect of a change from `deployment` to `to` under the load; refused if `to` would not start.

    The interval is the error measured for changes of these kinds.
    Raises Abstained as `forecast` does, and for a change of a knob the serving model does not know.
    """
    (result,) = compare_all([ChangeUnderLoad(deployment, to, load, calibration or Calibration())], market)
    if isinstance(result, Abstained):
        raise result
    return result


@dataclass(frozen=True, slots=True)
class ChangeUnderLoad:
    """A change of one deployment under a load and its calibration."""

    present: Deployment
    to: Deployment
    load: Load
    calibration: Calibration


def compare_all(comparisons: Sequence[ChangeUnderLoad], market: Market) -> list[BeforeAfter | Forecast | Abstained]:
    """Return `compare` of each change, or `Abstained`. They are computed together."""
    resolved_present, resolved_after = (
        resolve_each([(getattr(comparison, end), comparison.load) for comparison in comparisons], market)
        for end in ("present", "to")
    )
    results: list[BeforeAfter | Forecast | Abstained | None] = []
    forecastable: list[tuple[ChangeUnderLoad, Row, Row]] = []
    for comparison, present, proposed in zip(comparisons, resolved_present, resolved_after, strict=True):
        comparison = replace(comparison, calibration=comparison.calibration.for_change(comparison.to))
        try:
            check_kinds(comparison.present, comparison.to, comparison.load, market)
            check_hardware(comparison.present, comparison.to, market)
        except Abstained as reason:
            results.append(reason)
            continue
        if isinstance(present, Abstained):
            results.append(present)
        elif isinstance(proposed, Abstained):
            results.append(proposed)
        else:
            results.append(None)
            forecastable.append((comparison, present, proposed))
    changes = iter(_compared(forecastable, market) if forecastable else ())
    return [next(changes) if result is None else result for result in results]


def _compared(
    forecastable: Sequence[tuple[ChangeUnderLoad, Row, Row]], market: Market
) -> list[BeforeAfter | Forecast | Abstained]:
    comparisons, present_rows, proposed_rows = (list(column) for column in zip(*forecastable, strict=True))
    carried_over = [carried(comparison.calibration, comparison.to, market) for comparison in comparisons]
    present, proposed = stack_rows(present_rows), stack_rows(proposed_rows)
    deployments, loads = zip(*((comparison.to, comparison.load) for comparison in comparisons), strict=True)
    afterwards = _forecasts(deployments, loads, proposed, market, carried_over)
    starts = [row for row, forecast in enumerate(afterwards) if forecast.running is not None]
    if not starts:
        return list(afterwards)
    candidates_before, candidates_after = present.take(np.array(starts)), proposed.take(np.array(starts))
    comparisons, carried_over = [comparisons[row] for row in starts], [carried_over[row] for row in starts]
    running = (
        np.array([max(1.0, comparison.load.running) for comparison in comparisons]),
        np.array([point.concurrency for row in starts if (point := afterwards[row].running) is not None]),
    )
    posteriors = [calibration.posterior for calibration in carried_over]
    joint = Posterior(
        np.concatenate([posterior.mean for posterior in posteriors]),
        np.concatenate([posterior.covariance for posterior in posteriors]),
    )
    verified = np.array(
        [
            calibration.has_seen(change.present, change.to)
            for change, calibration in zip(comparisons, carried_over, strict=True)
        ]
    )
    points = np.where(verified, np.inf, [calibration.points for calibration in carried_over])
    ratios = ratio(candidates_before, candidates_after, efficiency(), deviation(), running, joint, points)
    by_points = [_rests_on_points(comparison) for comparison in comparisons]
    disagreement = np.where(verified | by_points, 0.0, np.abs(ratios.log_ratio - ratios.table_log_ratio))
    errors = [comparison.calibration.errors_for(comparison.to) for comparison in comparisons]
    missed_before, missed_after = (
        log_times(errors, loads_of(c, sequences))
        for c, sequences in zip((candidates_before, candidates_after), running, strict=True)
    )
    # What is not carried over is missed at the present end alone.
    missed_before = missed_before + [
        0.0 if calibration is change.calibration else change.calibration.log_time
        for change, calibration in zip(comparisons, carried_over, strict=True)
    ]
    log_ratios = ratios.log_ratio + missed_before - missed_after
    token_s = slowed(ratios.present, np.exp(missed_before)).token_s
    changes: list[BeforeAfter | Forecast | Abstained] = list(afterwards)
    for index, row in enumerate(starts):
        kinds = measured_kinds(comparisons[index].present, comparisons[index].to, market)
        half_width = float(intervals().half_width(kinds, ratios.log_sd[index], disagreement[index]))
        interval = interval_around(math.exp(log_ratios[index]), half_width)
        changes[row] = BeforeAfter(interval, 1000 * float(token_s[index]), afterwards[row])
    return changes


def _rests_on_points(comparison: ChangeUnderLoad) -> bool:
    """Return whether a change of the load alone is forecast from operating points of its deployment."""
    points = comparison.calibration.minutes + comparison.calibration.probed > 0
    return points and kinds_of(comparison.present, comparison.to) <= LOAD_KINDS


@dataclass(frozen=True)
class _Model:
    deployments: Sequence[Deployment]
    candidates: Candidates
    calibrations: Sequence[Calibration]

    def steady(self, concurrency: Array) -> Steady:
        """Return the steady state of each candidate. Token times include a share of the prefill."""
        state = steady_scaled(self.candidates, concurrency, self._scale)
        pairs = zip(self.deployments, self.calibrations, strict=True)
        errors = [calibration.errors_for(deployment) for deployment, calibration in pairs]
        return as_measured(state, self.candidates, errors)

    @cached_property
    def _scale(self) -> Array:
        shift = np.concatenate([calibration.shift for calibration in self.calibrations])
        return time_scale(self.candidates, efficiency(), shift)

    def points(self, concurrency: Array) -> list[Point]:
        state = self.steady(concurrency)
        token_s, rates = state.token_s, state.tok_s
        first_s = first_token_scaled(self.candidates, self._scale) + token_s
        half_widths = [_half_width(calibration, state.shares[row]) for row, calibration in enumerate(self.calibrations)]
        return [
            Point(
                float(concurrency[row]),
                interval_around(float(rates[row]), half_width),
                interval_around(1000 * float(token_s[row]), half_width),
                interval_around(1000 * float(first_s[row]), half_width),
            )
            for row, half_width in enumerate(half_widths)
        ]

    def concurrency_for(self, tok_s: Array, limits: Array) -> Array:
        """Return the fewest sequences that likely generate `tok_s`, NaN where even `limits` sequences do not.

        The rate increases with every sequence, or nearly so: errors near measured points may bend it.
        """

        def spare(running: Array) -> Array:
            return running - tok_s * self.steady(running).token_s

        enough = self.steady(limits).tok_s >= tok_s
        return np.where(enough, crossing(spare, np.minimum(1.0, limits), limits), np.nan)


def _half_width(calibration: Calibration, shares: Array) -> float:
    """Return the half width of the log time of one deployment; `shares` are the shares of the terms in it."""
    if calibration.error is not None:
        return Z_80 * calibration.log_sd(shares)
    return _half_width_of_load() if calibration.measured else intervals().floor


@cache
def _half_width_of_load() -> float:
    return float(intervals().half_width(["raise_batch"], deviation().noise))


def interval_around(likely: float, half_width: float) -> Range:
    """Return the interval of a figure from the half width of its logarithm."""
    factor = math.exp(half_width)
    return likely / factor, likely, likely * factor


def _assumptions(
    deployments: Sequence[Deployment], loads: Sequence[Load], c: Candidates, market: Market
) -> list[tuple[str, ...]]:
    return [
        (
            *_assumed(deployment, c.kv_bytes[row] < 2),
            *encoder_assumptions(deployment, load),
            *([reason] if (reason := uncovered_kernels(deployment, market)) else []),
        )
        for row, (deployment, load) in enumerate(zip(deployments, loads, strict=True))
    ]


def _assumed(deployment: Deployment, narrow_cache: bool) -> tuple[str, ...]:
    assumptions = []
    if deployment.kv_dtype is None and narrow_cache:
        assumptions.append(f"kv_dtype fp8, as published checkpoints in {deployment.weight_dtype} have it (not seen)")
    if deployment.gpu_memory_utilization is None:
        assumptions.append(f"gpu_memory_utilization {defaults().gpu_memory_utilization:g} (not seen)")
    if deployment.max_num_seqs is None:
        assumptions.append(f"max_num_seqs {defaults().max_num_seqs} (not seen)")
    if (deployment.tp, deployment.pp, deployment.dp) == (None, None, None) and len(deployment.device_ids) > 1:
        assumptions.append(f"its {len(deployment.device_ids)} devices are tensor-parallel ranks (layout not seen)")
    return tuple(assumptions)
