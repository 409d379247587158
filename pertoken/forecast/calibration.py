"""Calibration by a host's own measurements: deviations of each term's log time, shared by before and after.

A deployment deviates from the fitted table group by group of terms, and in all times together. Its measurements
are explained by the likeliest deviations a priori (a Gaussian prior, a few Gauss-Newton steps). One operating point is
of use already: a decode slower than expected at batch one is a matter of weights and launches rather
than of GEMMs. The rest of the uncertainty stays in the covariance, and so in the interval of a ratio.

Several operating points of one deployment add up: batch, lengths and share of prefill that differ separate the terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pertoken.by_identity import by_identity
from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import (
    Deviation,
    Efficiency,
    Steady,
    deviation,
    first_token_weights,
    rows_times,
    slowed,
    steady,
)
from pertoken.forecast.served import Abstained, Load, Row, resolve_each, stack_rows
from pertoken.forecast.terms import TERMS, context, total
from pertoken.state.deployment import Deployment

Owners = NDArray[np.intp]

STEPS = 4
SHORT_STEPS, SHORT_STEP = 24, 0.4
"""Steps, and the longest of each deviation, where a configuration of another time has to be explained as well: two
times that hardly differ, though half of the bytes are read, lie far from the table."""
MEMORY_TERMS = ("weights", "experts", "kv_cache")
PRODUCT_TERMS = ("decode_flops", "prefill_flops", "prefill_attention")
POINT_SD = 0.1
"""Standard deviation of the log time of one operating point: loads change within a minute, and the model misses some.
A judgement."""
MEDIAN_OF_NORMAL = 0.6745
"""Median absolute deviation of a normal distribution of standard deviation 1."""
MAX_SHIFT = 0.2
"""Log by which one operating point may move a ratio from the table's; more move it as many times as far. On
public changes that chose nothing a farther shift gained nothing and made the ninth decile of errors worse."""
MAX_SURPRISE = 0.8
"""Log of a measured step time over the expected one, either way, beyond which something unknown is at work."""
MAX_DEVIATION = 3.0
"""Largest log deviation of one group that is believed."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """Deviations of candidates, one row each. Coordinates: `Deviation.names`."""

    mean: Array
    """Shape (n, groups)."""
    covariance: Array
    """Shape (n, groups, groups)."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured time that is a weighted sum of the terms of a step, one row each."""

    seconds: Array
    """Shape (n,); NaN where not measured."""
    running: Array
    """Sequences at which it was measured, shape (n,)."""
    weights: Array
    """How often each term is in it, shape (number of `TERMS`,) or (n, number of `TERMS`)."""
    log_sd: Array | float
    """Standard deviation of its logarithm beyond what deviations explain, one for all rows or one each."""


def per_token(prior: Deviation, seconds: Array, running: Array) -> Observation:
    """Seconds per generated token of one sequence, prefills of others included: from tokens/s, or TPOT itself."""
    return Observation(seconds, running, np.ones(len(TERMS)), prior.noise)


def first_token(prior: Deviation, c: Candidates, seconds: Array) -> Observation:
    """Time to first token of requests that did not wait: one prefill and one step of a sequence alone."""
    return Observation(seconds, np.ones(len(c)), first_token_weights(c), prior.noise + prior.misfit)


def activity(c: Candidates, table: Efficiency, token_s: Array, running: Array, share: Array, terms: str) -> Observation:
    """Return a counter of the hardware or of the engine: the share of the listed bandwidth ("memory") or of the listed
    rate of products ("products") that was used while busy, shape (n,).

    Bytes or operations at their listed rate, times the known slowdown of these terms, are their time: so a
    counter determines how the measured time splits.
    """
    chosen = np.isin(TERMS, MEMORY_TERMS if terms == "memory" else PRODUCT_TERMS).astype(float)
    listed = steady(c, table, running, -table.log_scale(c.tags)).term_s * chosen
    reached = steady(c, table, running).term_s * chosen
    longer = total(reached) / np.maximum(total(listed), 1e-30)
    return Observation(share * token_s * longer, running, chosen, deviation().misfit)


def posterior(
    c: Candidates,
    table: Efficiency,
    prior: Deviation,
    seen: Sequence[Observation],
    owner: Owners | None = None,
    widen: Array | float = 1.0,
    *,
    short: bool = False,
) -> Posterior:
    """Return the deviations that explain the measurements; the prior itself without any.

    Rows of `c` that have the same `owner` are operating points of one deployment. `owner` has shape (n,), counts from
    0, and is sorted; by default each row is a deployment of its own. `widen` multiplies the standard deviations of the
    prior, one value for each deployment. `short`: many short steps, far from the prior.
    """
    owner = np.arange(len(c)) if owner is None else owner
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    n = len(begins)
    precision = 1 / np.maximum(prior.sd * np.reshape(widen, (-1, 1)), 1e-6) ** 2 * np.ones((n, 1))
    mean = np.zeros(precision.shape)
    information = prior_information = precision[:, :, None] * np.eye(precision.shape[1])
    # The listed times do not depend on the deviations, which only scale them.
    listed = [steady(c, table, observation.running).term_s * observation.weights for observation in seen]
    steps, longest = (SHORT_STEPS, SHORT_STEP) if short else (STEPS, np.inf)
    for _ in range(steps if seen else 0):
        information, score = prior_information, -mean * precision
        for observation, term_s in zip(seen, listed, strict=True):
            residual, slope = _residual(term_s, mean[owner], prior, observation)
            information = information + np.add.reduceat(slope[:, :, None] * slope[:, None, :], begins)
            score = score + np.add.reduceat(slope * residual[:, None], begins)
        step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        mean = np.clip(mean + np.clip(step, -longest, longest), -MAX_DEVIATION, MAX_DEVIATION)
    return Posterior(mean, np.linalg.inv(information).astype(float))


def _residual(term_s: Array, mean: Array, prior: Deviation, seen: Observation) -> tuple[Array, Array]:
    """Return the log times seen that deviations `mean` leave open, shape (n,), and their slope, shape (n, groups).

    Both are in standard deviations of the observation, and 0 where it was not measured.
    """
    part_s = term_s * np.exp(rows_times(mean, prior.groups))
    expected = total(part_s)
    is_usable = np.isfinite(seen.seconds) & (expected > 0)
    expected = np.where(is_usable, expected, 1.0)
    residual = np.log(np.where(is_usable, seen.seconds, 1.0) / expected) * is_usable / seen.log_sd
    slope = (
        rows_times(part_s, prior.groups.T) / expected[:, None] * is_usable[:, None] / np.reshape(seen.log_sd, (-1, 1))
    )
    return residual, slope


def prequential(
    c: Candidates, table: Efficiency, prior: Deviation, seen: Observation, owner: Owners, widen: Array | float = 1.0
) -> tuple[Array, Array]:
    """Return the log error of each row, predicted from the earlier rows of its owner alone; shape (n,).

    Beside it stands the same over its expected standard deviation, which is large while little was seen. Rows of an
    owner are in the order in which they were measured. NaN for its first measurement and where nothing was measured.
    Each row updates the deviations as an extended Kalman filter does, so all rows cost one pass.
    """
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    position = np.arange(len(owner)) - begins[owner]
    sd = np.maximum(prior.sd * np.reshape(widen, (-1, 1)), 1e-6) * np.ones((len(begins), 1))
    mean, covariance = np.zeros(sd.shape), sd[:, :, None] ** 2 * np.eye(sd.shape[1])
    listed = steady(c, table, seen.running).term_s * seen.weights
    errors, scores = np.full(len(owner), np.nan), np.full(len(owner), np.nan)
    started = np.zeros(len(begins), bool)
    for step in range(int(position.max(initial=-1)) + 1):
        rows = np.flatnonzero(position == step)
        owners = owner[rows]
        observation = Observation(seen.seconds[rows], seen.running[rows], seen.weights, seen.log_sd)
        residual, slope = _residual(listed[rows], mean[owners], prior, observation)
        measured = np.isfinite(observation.seconds)
        gained = (covariance[owners] * slope[:, None, :]).sum(axis=2)
        variance = 1 + (gained * slope).sum(axis=1)
        errors[rows] = np.where(measured & started[owners], residual * seen.log_sd, np.nan)
        scores[rows] = np.where(measured & started[owners], residual / np.sqrt(variance), np.nan)
        started[owners] |= measured
        gain = gained / variance[:, None]
        mean[owners] = np.clip(mean[owners] + gain * residual[:, None], -MAX_DEVIATION, MAX_DEVIATION)
        covariance[owners] -= gain[:, :, None] * gained[:, None, :]
    return errors, scores


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Error of predicted operating points, each predicted before its measurement was used (prequential)."""

    median_log: float
    """Median of the absolute log errors of the time per token."""
    n: int
    median_score: float
    """Median of the same over the standard deviation that was expected of each: large while little was seen."""

    @property
    def log_sd(self) -> float:
        """The standard deviation of one measurement around its prediction, once the terms are known.

        It is the one assumed of operating points, times how much further off than expected they were.
        """
        return POINT_SD * self.median_score / MEDIAN_OF_NORMAL


def prediction_error(errors: Array, scores: Array, least: int) -> PredictionError | None:
    """Return the error of one owner from its rows of `prequential`, None where fewer than `least` were predicted."""
    is_finite = np.isfinite(errors)
    if is_finite.sum() < least:
        return None
    of_log, of_score = (float(np.median(np.abs(values[is_finite]))) for values in (errors, scores))
    return PredictionError(of_log, int(is_finite.sum()), of_score)


@dataclass(frozen=True, slots=True)
class ThroughputRatios:
    """Log-ratios of generated tokens/s, after over before, one row each."""

    log_ratio: Array
    log_sd: Array
    """Uncertainty left by the measurement and errors of the model, before any conformal widening."""
    table_log_ratio: Array
    """Log-ratio without calibration."""
    present: Steady


def ratio(
    candidates_before: Candidates,
    after: Candidates,
    table: Efficiency,
    prior: Deviation,
    running: tuple[Array, Array],
    posterior: Posterior,
    points: Array | float = 1.0,
) -> ThroughputRatios:
    """Return the ratio of rates, `after` over `candidates_before`, row by row, both under `posterior`.

    `running`: sequences before and after. The deviations hold for both. Before and after swapped give the negative.
    `points`: operating points that `posterior` rests on, which bound how far it may move the ratio (`MAX_SHIFT`).
    """
    shift = rows_times(posterior.mean, prior.groups)
    present = steady(candidates_before, table, running[0], shift)
    proposed = steady(after, table, running[1], shift)
    change = rows_times(proposed.shares, prior.groups.T) - rows_times(present.shares, prior.groups.T)
    left_open = (change[:, :, None] * posterior.covariance * change[:, None, :]).sum(axis=(1, 2))
    uncalibrated = np.log(steady(after, table, running[1]).tok_s / steady(candidates_before, table, running[0]).tok_s)
    calibrated = np.log(proposed.tok_s / present.tok_s)
    farthest = MAX_SHIFT * np.asarray(points)
    log_ratio = uncalibrated + np.clip(calibrated - uncalibrated, -farthest, farthest)
    variance = np.maximum(left_open, 0.0) + 2 * prior.noise**2 + np.square(prior.misfit * log_ratio)
    return ThroughputRatios(log_ratio, np.sqrt(variance), uncalibrated, present)


ERROR_SD = 0.5
"""Standard deviation of an error, as a log time. It and the length were chosen on public rows; see
`python -m benchmarks.forecast --calibrate-with 10 --folds`: its groups of sources choose again."""
ERROR_LENGTH = 2.0
"""Distance between loads, in logarithms, over which errors are alike."""


@dataclass(frozen=True, slots=True)
class LoadErrors:
    """Errors at operating points of one deployment."""

    loads: tuple[tuple[float, ...], ...]
    """Of each point: see `loads_of`."""
    log_errors: tuple[float, ...]
    """Of each point: the log of the measured time over the model's."""


def loads_of(c: Candidates, running: Array) -> Array:
    """Return the load as logarithms: running sequences, their context, and the tokens they generate.

    `running`: shape (n,), or (n, points) of candidates that are `spread`; the result has one more axis, of 3.
    """
    parts = np.broadcast_arrays(running, context(c), c.generated_len)
    return np.asarray(np.log(np.maximum(np.stack(parts, axis=-1), 1.0)))


def load_errors(loads: Array, log_errors: Array) -> LoadErrors | None:
    """Return the errors around points of these loads, shape (n, 3), with times off by `log_errors`, shape (n,).

    NaN where no time was measured; None without any measured point. Errors are cut off at `MAX_SURPRISE`: a minute in
    which a server stalled, at a load that no other minute had, would otherwise dominate all forecasts near it.
    """
    is_finite = np.isfinite(log_errors)
    if not is_finite.any():
        return None
    kept = np.clip(log_errors[is_finite], -MAX_SURPRISE, MAX_SURPRISE)
    return LoadErrors(tuple(map(tuple, loads[is_finite].tolist())), tuple(kept.tolist()))


def log_times(errors: Sequence[LoadErrors | None], loads: Array) -> Array:
    """Return the log of the measured time over the model's at loads of shape (n, 3) or (n, points, 3), without their
    last axis. 0 where no errors are known.
    """
    rows = [row for row, load_errors in enumerate(errors) if load_errors is not None]
    missed = np.zeros(loads.shape[:-1])
    if not rows:
        return missed
    points = [_points(load_errors) for load_errors in errors if load_errors is not None]
    most = max(len(weights) for _, weights in points)
    # Points of no weight fill up the shorter lists, and sums go point by point: what else is computed beside changes no
    # digit.
    point_loads, weight = np.zeros((len(rows), most, loads.shape[-1])), np.zeros((len(rows), most))
    for row, (own_loads, weights) in enumerate(points):
        point_loads[row, : len(weights)], weight[row, : len(weights)] = own_loads, weights
    requested_loads = loads[rows].reshape(len(rows), -1, loads.shape[-1])
    alike = _likeness(requested_loads[:, :, None, :], point_loads[:, None, :, :])
    missed[rows] = total(alike * weight[:, None, :]).reshape(missed[rows].shape)
    return missed


def as_measured(state: Steady, c: Candidates, errors: Sequence[LoadErrors | None]) -> Steady:
    """Return steady states with the times that points near their loads show."""
    if not any(errors):
        return state
    return slowed(state, np.exp(log_times(errors, loads_of(c, state.running))))


@by_identity
def _points(errors: LoadErrors) -> tuple[Array, Array]:
    """Return the loads of points, and the weight of the error of each at a load alike."""
    loads = np.array(errors.loads)
    alike = ERROR_SD**2 * _likeness(loads[:, None, :], loads[None, :, :])
    weights = np.linalg.solve(alike + POINT_SD**2 * np.eye(len(loads)), np.array(errors.log_errors))
    return loads, ERROR_SD**2 * weights


def _likeness(loads: Array, point_loads: Array) -> Array:
    """Return the correlation of errors at loads; their last axis is summed up."""
    return np.asarray(np.exp(-total((loads - point_loads) ** 2) / (2 * ERROR_LENGTH**2)))


Z95 = 1.6448536269514722
"""95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Realised:
    """One change of a deployment that was verified."""

    old_values: tuple[tuple[str, Any], ...]
    """Fields of the deployment that changed, with their values before."""
    ratio: tuple[float, float, float]
    """Device-seconds per token now over those before at like load, 90 % interval: low, likely, high."""
    source: str
    """The receipt, for people."""

    def ran(self, deployment: Deployment) -> Deployment:
        """Return the deployment as it ran before."""
        return replace(deployment, **dict(self.old_values))

    def slower_before(self, deployment: Deployment) -> float:
        """Return the measured seconds per token of one sequence before over those now."""
        return (deployment.n_devices or 1) / (self.ran(deployment).n_devices or 1) / self.ratio[1]

    @property
    def log_sd(self) -> float:
        """Standard deviation of the logarithm of the ratio."""
        low, _, high = self.ratio
        return (math.log(high) - math.log(low)) / (2 * Z95)

    @property
    def words(self) -> str:
        """The measurement, for people."""
        low, likely, high = (value - 1 for value in self.ratio)
        changed = ", ".join(f"{name} {'not set' if value is None else value}" for name, value in self.old_values)
        return f"{likely:+.1%} ({low:+.1%} to {high:+.1%}) device time per token since it ran with {changed}"


@dataclass(frozen=True, slots=True, eq=False)
class Earlier:
    """State of a deployment before a verified change."""

    realised: Realised
    row: Row


def earlier(present_deployment: Deployment, load: Load, changes: Sequence[Realised], market: Market) -> list[Earlier]:
    """Return how a deployment ran before each verified change, as far as the serving model knows that."""
    rows = resolve_each([(realised.ran(present_deployment), load) for realised in changes], market)
    return [
        Earlier(realised, row) for realised, row in zip(changes, rows, strict=True) if not isinstance(row, Abstained)
    ]


def with_earlier(means: Candidates, counts: Sequence[int], changes: Sequence[Sequence[Earlier]]) -> Candidates:
    """Return each candidate `counts` times, each followed by its states before its changes."""
    if not any(changes):
        return means.take(np.repeat(np.arange(len(means)), counts))
    candidates_before = stack_rows([earlier.row for earlier in chain.from_iterable(changes)])
    columns = {
        field.name: np.concatenate([getattr(means, field.name), getattr(candidates_before, field.name)])
        for field in fields(Candidates)
    }
    index: list[int] = []
    following = len(means)
    for row, (count, earlier_states) in enumerate(zip(counts, changes, strict=True)):
        index += [*[row] * count, *range(following, following + len(earlier_states))]
        following += len(earlier_states)
    return Candidates(**columns).take(np.array(index))


def before_changes(c: Candidates, running: Array, seconds: Array, changes: Sequence[Sequence[Earlier]]) -> Observation:
    """Return the times per token before each change as an observation of the rows of `c`; NaN in other rows.

    It is as uncertain as the model and the ratio.
    """
    prior = deviation()
    sd = np.full(len(c), prior.noise)
    for row, earlier in zip(np.flatnonzero(np.isfinite(seconds)), chain.from_iterable(changes), strict=True):
        sd[row] = math.hypot(prior.noise, earlier.realised.log_sd)
    return replace(per_token(prior, seconds, running), log_sd=sd)
