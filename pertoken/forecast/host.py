"""Calibration of the serving model on measurements of one host."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter

import numpy as np

from pertoken.by_identity import by_identity
from pertoken.catalog.market import CPU_ARCH, Market
from pertoken.evidence import OperatingPoint
from pertoken.forecast.calibration import (
    MAX_SURPRISE,
    POINT_SD,
    Earlier,
    LoadErrors,
    Owners,
    Posterior,
    PredictionError,
    Realised,
    activity,
    before_changes,
    earlier,
    first_token,
    load_errors,
    loads_of,
    per_token,
    posterior,
    prediction_error,
    prequential,
    with_earlier,
)
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import filling_sequences, fitting_sequences
from pertoken.forecast.efficiency import deviation, efficiency, rows_times, steady
from pertoken.forecast.served import Abstained, Load, for_each, kinds_of, onto_cpus, uncovered_kernels
from pertoken.forecast.tiers import Tier, tiers
from pertoken.state.deployment import Deployment

SOME_WAIT = 0.1
"""Waiting requests from which a measured TTFT is mostly queueing time, not prefill."""
LOAD_KINDS = frozenset({"raise_batch", "raise_batch_far"})
"""Kinds of change with a forecast from operating points; others rest on the mean of the window.

Points show how time grows with the load, but the time that they attribute to a term is partly an error of the model.
On public pairs ten points made changes of the batch better and changes of weights, ranks or device worse
(`python -m benchmarks.forecast --calibrate-with 10`)."""
MIN_POINTS = 3
"""Operating points from which they stand in for the mean of the window."""
CPU_WIDENING = 3.0
"""Times the table's deviations on CPUs, which it was not fitted on: a judgement."""
MUCH_OF_CACHE = 0.3
"""Use of the KV cache from which it determines how many sequences fill it: below, fixed blocks and prefixes blur it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Deviations of a host from the model: shared by before and after, so that they cancel where a ratio allows."""

    origin: Deployment | None = None
    """Where it was measured."""
    mean: tuple[float, ...] = ()
    """Deviations of log times, in the order of `Deviation.names`; empty where nothing was measured."""
    covariance: tuple[tuple[float, ...], ...] = ()
    capacity: float = 1.0
    """Factor on the sequences that fit; at least those seen running."""
    log_time: float = 0.0
    """Logarithm of the measured step time over the uncalibrated one."""
    points: int = 1
    """Operating points that the deviations rest on; the mean of a window is one."""
    minutes: int = 0
    """Minutes of the deployment's own load that it rests on; 0 where it rests on the mean of a window."""
    probed: int = 0
    """Points of a probe that it rests on."""
    realised: tuple[Realised, ...] = ()
    """Verified changes of the deployment that it rests on."""
    load_errors: LoadErrors | None = None
    """Errors of the model near operating points of the load; None where it rests on fewer than `MIN_POINTS`."""
    misfit: float = 0.0
    """Smallest standard deviation of a log time that is believed, however well points were predicted: on CPUs no term
    holds how steps of a few sequences use caches and tiles, and points of one batch do not show it."""
    error: PredictionError | None = None
    """How far it was off on points that it had not seen; None where it rests on fewer than `MIN_POINTS`."""
    window: "Calibration | None" = None
    """The calibration on the mean of the window, for changes of more than the load; None where this one serves all."""

    def for_change(self, to: Deployment) -> "Calibration":
        """Return the calibration for a change to a deployment, before and after alike."""
        if self.window is None or self.origin is None or kinds_of(self.origin, to) <= LOAD_KINDS:
            return self
        return self.window

    def errors_for(self, deployment: Deployment) -> LoadErrors | None:
        """Return the errors near points, None for a deployment that differs in more than its load."""
        return self.for_change(deployment).load_errors

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return self.origin is not None

    @property
    def surprising(self) -> bool:
        """Whether the host runs so unlike the model that its forecasts rest on physics only."""
        return abs(self.log_time) > MAX_SURPRISE

    @property
    def posterior(self) -> Posterior:
        """As one row; the prior itself where nothing was measured."""
        return _posterior(self)

    @property
    def track_record(self) -> str | None:
        """How well it predicted this deployment so far, for people; None where that is not known."""
        if self.error is None:
            return None
        parts = [f"{self.minutes} minutes"] if self.minutes else []
        parts += [f"{self.probed} points of a probe"] if self.probed else []
        return (
            f"on {' and '.join(parts)} of this deployment, each predicted before it was seen, the forecast's time per "
            f"token was off by {math.expm1(self.error.median_log):.0%} (median of {self.error.n})"
        )

    @property
    def receipts(self) -> tuple[str, ...]:
        """The verified changes that it rests on, for people."""
        calibrated_by = "the forecast of this host is calibrated by"
        return tuple(f"{calibrated_by} {realised.source}: {realised.words}" for realised in self.realised)

    def has_seen(self, deployment: Deployment, to: Deployment) -> bool:
        """Return whether a change is of kinds verified on this host: its ratio is measured, not inferred."""
        kinds = kinds_of(deployment, to)
        verified = (kinds_of(deployment, realised.ran(deployment)) for realised in self.realised)
        return bool(kinds) and any(kinds <= kinds_of_change for kinds_of_change in verified)

    def log_sd(self, shares: Array) -> float:
        """Return the standard deviation of a step's log time, given the shares of its terms.

        It adds the uncertainty of the measurements and the errors of predictions of this deployment.
        """
        prior = deviation()
        slope = prior.groups @ shares
        left_open = float(slope @ np.array(self.covariance) @ slope)
        missed = max(prior.noise, self.misfit, self.error.log_sd if self.error is not None else 0.0)
        return math.sqrt(max(left_open, 0.0) + missed**2)

    @property
    def shift(self) -> Array:
        """Additions to the log times of the terms, shape (1, number of `TERMS`)."""
        return _shift(self)


@by_identity
def _posterior(calibration: Calibration) -> Posterior:
    prior = deviation()
    if calibration.origin is None:
        return Posterior(np.zeros((1, len(prior.sd))), np.diag(prior.sd**2)[None])
    return Posterior(np.array([calibration.mean]), np.array([calibration.covariance]))


@by_identity
def _shift(calibration: Calibration) -> Array:
    return rows_times(calibration.posterior.mean, deviation().groups)


@dataclass(frozen=True, slots=True)
class BusyMeasurements:
    """Measurements of one deployment while busy, at the load's running requests; None where not measured."""

    deployment: Deployment
    load: Load
    busy_tok_s: float
    """Generated tokens per second of busy time."""
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    """Used only where nobody waited."""
    kv_use: float | None = None
    """Share of the KV cache in use."""
    memory_active: float | None = None
    """Share of the listed memory bandwidth used, by the driver's counters or the engine's bytes."""
    gemm_active: float | None = None
    """Share of the listed rate of products used, by the same."""
    points: tuple[OperatingPoint, ...] = ()
    """Operating points; from `MIN_POINTS` on they replace the means."""
    realised: tuple[Realised, ...] = ()

    @property
    def enough_points(self) -> bool:
        """Whether its operating points replace the means of the window."""
        return len(self.points) >= MIN_POINTS

    @property
    def used_points(self) -> list[OperatingPoint]:
        """Operating points that count, by time; few of a probe count beside the means of the window."""
        few_of_load = not self.enough_points and not all(point.probed for point in self.points)
        return [] if few_of_load else sorted(self.points, key=lambda point: point.ts)

    @property
    def possible(self) -> bool:
        """Whether all of it is above 0."""
        figures = self.busy_tok_s, self.tpot_ms, self.ttft_ms, self.kv_use, self.memory_active, self.gemm_active
        return all(figure is None or figure > 0 for figure in figures)


def calibrate_all(seen: Sequence[BusyMeasurements], market: Market) -> list[Calibration | Abstained | ValueError]:
    """Return the deviations from the fitted table that make the model agree with each deployment's own measurements.

    An error in place of a result: where something is unknown, or a measurement is not above 0.
    """
    calibrate = partial(_calibrated, market=market)
    possible = [measured for measured in seen if measured.possible]
    results = iter(for_each(possible, attrgetter("deployment", "load"), market, calibrate))
    refused = ValueError("calibration needs rates, times and shares above 0")
    return [next(results) if measured.possible else refused for measured in seen]


def _calibrated(seen: Sequence[BusyMeasurements], means: Candidates, market: Market) -> list[Calibration]:
    """Calibrate deployments; `means` has a row for each, at the mean load of its window."""
    prior, table = deviation(), efficiency()
    rows = _rows(
        seen, means, [earlier(measured.deployment, measured.load, measured.realised, market) for measured in seen]
    )
    c, owner, running = rows.candidates, rows.owner, rows.running
    widen = np.array([CPU_WIDENING if _on_cpus(measured.deployment, market) else 1.0 for measured in seen])
    points = replace(per_token(prior, rows.point_s, running), log_sd=POINT_SD)
    observed = [
        per_token(prior, rows.token_s, running),
        per_token(prior, rows.tpot_s, running),
        points,
        first_token(prior, c, rows.ttft_s),
        activity(c, table, rows.busy_s, running, rows.memory_active, "memory"),
        activity(c, table, rows.busy_s, running, rows.gemm_active, "products"),
    ]
    measured_times = [observation for observation in observed if np.isfinite(observation.seconds).any()]
    fitted = posterior(c, table, prior, measured_times, owner, widen)
    if any(rows.realised):
        now_s = steady(c, table, running, rows_times(fitted.mean[owner], prior.groups)).token_s
        began = np.searchsorted(owner, owner)  # the mean of the window of each owner comes first
        changes = before_changes(c, running, rows.slower_before * now_s[began], rows.realised)
        more = posterior(c, table, prior, [*measured_times, changes], owner, widen, short=True)
        with_change = np.array([bool(earlier) for earlier in rows.realised])
        fitted = Posterior(
            np.where(with_change[:, None], more.mean, fitted.mean),
            np.where(with_change[:, None, None], more.covariance, fitted.covariance),
        )
    errors, scores = prequential(c, table, prior, points, owner, widen)
    modelled_s = steady(c, table, running, rows_times(fitted.mean[owner], prior.groups)).token_s
    begins = np.searchsorted(owner, np.arange(1, len(seen)))
    loads, log_errors = (np.split(a, begins) for a in (loads_of(c, running), np.log(points.seconds / modelled_s)))
    with_points = [row for row, measured in enumerate(seen) if measured.enough_points and widen[row] == 1]
    plain = [replace(seen[row], points=()) for row in with_points]
    on_means = _calibrated(plain, means.take(np.array(with_points)), market) if plain else []
    windows = dict(zip(with_points, on_means, strict=True))
    at_mean = np.array([max(1.0, measured.load.running) for measured in seen])
    expected = steady(means, table, at_mean).token_s
    explained = steady(means, table, at_mean, rows_times(fitted.mean, prior.groups)).token_s
    fitting, filling = fitting_sequences(means), filling_sequences(means)
    calibrations = [
        Calibration(
            origin=measured.deployment,
            mean=tuple(map(float, fitted.mean[row])),
            covariance=tuple(tuple(map(float, line)) for line in fitted.covariance[row]),
            capacity=_capacity(float(at_mean[row]), float(fitting[row]), float(filling[row]), measured.kv_use),
            log_time=float(np.log(explained[row] / expected[row])),
            points=len(measured.used_points) + (not measured.enough_points),
            minutes=sum(not point.probed for point in measured.used_points),
            probed=sum(point.probed for point in measured.used_points),
            realised=tuple(state.realised for state in rows.realised[row]),
            load_errors=load_errors(loads[row], log_errors[row]) if row in windows else None,
            misfit=prior.misfit if widen[row] != 1 else 0.0,
            error=prediction_error(errors[owner == row], scores[owner == row], MIN_POINTS - 1),
        )
        for row, measured in enumerate(seen)
    ]
    for row, window in windows.items():
        points_of = calibrations[row]
        # Both have the same track record.
        window = replace(window, minutes=points_of.minutes, probed=points_of.probed, error=points_of.error)
        calibrations[row] = replace(points_of, window=window)
    return calibrations


@dataclass(frozen=True, slots=True)
class _Rows:
    """Observations, one row for each operating point: the mean of each deployment's window, then its points."""

    candidates: Candidates
    owner: Owners
    """Place of the deployment of each row."""
    running: Array
    token_s: Array
    """By the mean rate of the window; NaN where not measured, or where points replace it. So are the others."""
    tpot_s: Array
    point_s: Array
    ttft_s: Array
    busy_s: Array
    """Seconds per token that `memory_active` and `gemm_active` are shares of."""
    memory_active: Array
    gemm_active: Array
    slower_before: Array
    """Seconds per token before a verified change over those now."""
    realised: Sequence[Sequence[Earlier]] = ()
    """By deployment."""


def _rows(seen: Sequence[BusyMeasurements], means: Candidates, changes: Sequence[Sequence[Earlier]]) -> _Rows:
    used_points = [measured.used_points for measured in seen]
    n_rows = [1 + len(points) + len(states) for points, states in zip(used_points, changes, strict=True)]
    owner = np.repeat(np.arange(len(seen)), n_rows)
    c = with_earlier(means, [1 + len(points) for points in used_points], changes)
    columns = {name: getattr(c, name).copy() for name in ("prompt_len", "generated_len", "cached_share")}
    figures: dict[str, list[float | None]] = {field.name: [] for field in fields(_Rows)[2:-1]}

    def add(**measured: float | None) -> None:
        for name, values in figures.items():
            values.append(measured.get(name))

    for host_observed, points, earlier_states in zip(seen, used_points, changes, strict=True):
        running = max(1.0, host_observed.load.running)
        mean_s, waited = running / host_observed.busy_tok_s, host_observed.load.waiting >= SOME_WAIT
        activity_known = any(point.memory_active or point.gemm_active for point in points)
        replaced = host_observed.enough_points
        add(
            running=running,
            busy_s=mean_s,
            token_s=None if replaced else mean_s,
            tpot_s=None if replaced or host_observed.tpot_ms is None else host_observed.tpot_ms / 1000,
            ttft_s=None if replaced or waited or host_observed.ttft_ms is None else host_observed.ttft_ms / 1000,
            memory_active=None if activity_known else host_observed.memory_active,
            gemm_active=None if activity_known else host_observed.gemm_active,
        )
        for point in points:
            row = len(figures["running"])
            for name in columns:
                columns[name][row] = getattr(point, name)
            add(
                running=max(1.0, point.running),
                busy_s=point.token_s,
                point_s=point.token_s,
                ttft_s=point.ttft_s,
                memory_active=point.memory_active,
                gemm_active=point.gemm_active,
            )
        for state in earlier_states:
            add(running=running, slower_before=state.realised.slower_before(host_observed.deployment))
    arrays = {name: np.array(values, np.float64) for name, values in figures.items()}  # NaN for None
    return _Rows(replace(c, **columns), owner, **arrays, realised=changes)


@by_identity
def carried(calibration: Calibration, to: Deployment, market: Market) -> Calibration:
    """Return the calibration that holds for a deployment after a change.

    The errors on accelerators are no evidence on CPUs: there it is the prior, around the rates that a probe measured.
    Forecasts from such rates alone were held by half widths of 0.25 of a logarithm in 46 of 54 figures
    (`benchmarks.site --cpu-time --seed 161803`); a move has wider ones.
    """
    if calibration.origin is None or not onto_cpus(calibration.origin, to, market):
        return calibration
    prior = deviation()
    covariance = np.diag(prior.sd**2)
    return Calibration(
        origin=calibration.origin,
        mean=(0.0,) * len(prior.sd),
        covariance=tuple(tuple(map(float, line)) for line in covariance),
        misfit=prior.misfit,
    )


def _on_cpus(deployment: Deployment, market: Market) -> bool:
    accelerator = market.accelerator(deployment.accelerator)
    return accelerator is not None and accelerator.arch == CPU_ARCH


def _capacity(running: float, fitting: float, filling: float, kv_use: float | None) -> float:
    """Return the factor on the sequences that fit: by how many fill a well-used cache, else by those seen running."""
    if fitting <= 0:
        return 1.0
    if kv_use is not None and kv_use >= MUCH_OF_CACHE:
        return running / kv_use / filling
    return max(1.0, running / fitting)


def tier_of(to: Deployment, calibration: Calibration, market: Market) -> Tier:
    """Return the tier of a forecast of a deployment under a calibration.

    A surprising host is *physics only*, whatever was measured on it. Points of a deployment count for changes of its
    load alone, and on CPUs that it does not run on their rates. Raises Abstained for a format the serving model does
    not know.
    """
    if calibration.surprising or uncovered_kernels(to, market):
        return tiers()["physics"]
    origin = calibration.origin
    if _on_cpus(to, market) and (origin is None or origin.accelerator != to.accelerator):
        return tiers()["cpus"]
    if origin is not None and kinds_of(origin, to) <= LOAD_KINDS:
        if calibration.minutes:
            return tiers()["measured"]
        if calibration.probed:
            return tiers()["probed"]
    return tiers()["stated"]
