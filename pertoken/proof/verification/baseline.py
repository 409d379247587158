"""Baseline: predicted cost of a token without the change, and the uncertainty of its mean.

The log cost of a bucket is a smooth function of load, mix and cache level, an effect of its bucket of the week, a drift
in time and noise that is correlated over some buckets. The bucket of the week enters as in CUPED (Deng, Xu, Kohavi and
Walker, WSDM 2013): the mean of the same bucket in the weeks before, times the part of it that is not noise. The drift
is shrunk towards none. The prediction is a weighted sum of the costs before the change, so that its variance is a
quadratic form in the autocovariance of the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pertoken.proof.verification.question import PRESENT, Covariate, Cycle, Method
from pertoken.window.columns import Floats, Ints, Mask
from pertoken.window.like_for_like import HourlyOutcomes


@dataclass(frozen=True, eq=False)
class BucketGrid:
    """One row per bucket. A bucket that was not measured has 0 in `cost` and `covariates`, and False in `known`."""

    ts: Ints
    phase: Ints
    """Bucket of the week."""
    known: Mask
    cost: Floats
    """Logarithm of device-seconds per token: effects are ratios."""
    covariates: Floats
    """(buckets, columns)."""
    columns: tuple[Covariate, ...]
    """Covariate of each column."""
    cycle: Cycle
    started_ts: Ints | None = None
    """Start of the process that served each bucket; None where restarts are not recorded."""

    def __len__(self) -> int:
        return len(self.ts)

    def without(self, covariate: Covariate) -> BucketGrid:
        """Return the grid without the columns of a covariate."""
        kept = [column != covariate for column in self.columns]
        columns = tuple(column for column in self.columns if column != covariate)
        return replace(self, covariates=self.covariates[:, kept], columns=columns)

    @cached_property
    def process(self) -> Ints:
        """Number of the process that served each bucket; all 0 where the time since the start is no covariate."""
        if self.started_ts is None or Covariate.UPTIME not in self.columns:
            return np.zeros(len(self), np.int64)
        return np.unique(self.started_ts, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def design(self) -> Floats:
        """Columns that the cost is fitted by: a level, the covariates, the processes if several, and empty weeks."""
        count = int(self.process.max(initial=0)) + 1
        processes = np.eye(count)[self.process, 1 if count == 1 else 0 :]
        return np.column_stack([np.ones(len(self)), self.covariates, processes, np.zeros(len(self))])

    def mean(self, mask: Mask) -> Floats:
        """Return the mean of each covariate over some buckets."""
        mean: Floats = self.covariates[mask].mean(axis=0)
        return mean


def grid_of(
    hours: HourlyOutcomes, start: int, end: int, cycle: Cycle, without: frozenset[Covariate] = frozenset()
) -> BucketGrid:
    """Return hours as a grid of the buckets of [start, end); `start` is the start of a bucket.

    The covariates are log load and its square (a token gets cheaper with load, at a decreasing rate), the logarithms of
    the generated share and of the tokens per request, and, if the engine exposes them, the cached share and the spread
    of the lengths. Time since the start enters as days and as their logarithm: a cost may creep up, or settle.
    """
    ts = start + cycle.bucket_s * np.arange(max(0, -(-(end - start) // cycle.bucket_s)), dtype=np.int64)
    index = (hours.ts - start) // cycle.bucket_s
    inside = (index >= 0) & (index < len(ts))
    index = index[inside]
    measured = np.zeros(len(ts), bool)
    measured[index] = True
    load = np.log(hours.tokens_per_s)
    load = load - (load.mean() if len(load) else 0.0)
    columns: list[tuple[Covariate, Floats | None]] = [
        (Covariate.LOAD, load),
        (Covariate.LOAD, load**2),
        (Covariate.MIX, np.log(hours.generated_share)),
        (Covariate.CACHE, hours.cached_share),
        (Covariate.LENGTH, None if hours.tokens_per_request is None else np.log(hours.tokens_per_request)),
        (Covariate.PROMPT_SPREAD, hours.prompt_spread),
        (Covariate.GENERATED_SPREAD, hours.generated_spread),
    ]
    if hours.started_ts is not None:
        days = (hours.ts - hours.started_ts) / cycle.day_s
        columns += [(Covariate.UPTIME, np.log1p(days)), (Covariate.UPTIME, days)]
    used = [(name, values) for name, values in columns if values is not None and name not in without]
    covariates = np.zeros((len(ts), len(used)))
    for column, (_, values) in enumerate(used):
        covariates[index, column] = values[inside] - (values.mean() if len(values) else 0.0)
    cost = np.zeros(len(ts))
    cost[index] = np.log(hours.device_s_per_token[inside])
    started_ts = None
    if hours.started_ts is not None:
        started_ts = np.zeros(len(ts), np.int64)
        started_ts[index] = hours.started_ts[inside]
    return BucketGrid(
        ts, cycle.phase(ts), measured, cost, covariates, tuple(name for name, _ in used), cycle, started_ts
    )


DRIFT_PER_WEEK = 0.003
"""Standard deviation of the weekly drift of log cost without a known cause. A judgement; a baseline with clearly more
drift keeps its own."""
UPTIME_SD = (0.01, 0.001)
"""Standard deviation of the change of log cost with the time since the start: by the logarithm of a day and the days,
and by the days. Like the drift, a baseline in which the cost clearly changes with it keeps its own. A judgement."""
MIN_ALIKE_PROCESSES = 3
"""Minimum number of measured processes that may show that starts do not matter: fewer may be alike by chance."""
MIN_PROCESS_DAYS = 0.5
"""Minimum measured days of a process before the change that is compared with others."""
BLOCK = 48
"""Buckets of a block. Bartlett weights of this length keep 96 % of the variance of a mean of AR(1) noise of 0.6."""
MIN_BLOCKS = 12
"""Minimum number of blocks of a baseline: a short baseline has shorter blocks."""
_RIDGE = 1e-9
"""Penalty on covariates per observation, so that a constant covariate has coefficient 0."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """Weights of the squares of coefficients in a fit; infinite where a coefficient is left out."""

    drift: float = math.inf
    uptime: tuple[float, ...] = (0.0, 0.0)
    process: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """Scatter of the costs of one deployment about its baseline."""

    autocovariance: Floats
    """By lag in buckets, from 0 on, with Bartlett weights. This is the limit of a block bootstrap with blocks of this
    length (Politis and Romano 1992) over infinitely many samples."""
    phase_variance: float
    """Variance of the effects of the buckets of the week."""
    within_variance: float
    """Variance of buckets about the effect of their bucket of the week."""
    drift_variance: float
    """Variance of the drift per week: `DRIFT_PER_WEEK` squared, or the drift of this baseline if it is larger."""
    degrees: float
    """Degrees of freedom of the variance: blocks of the baseline minus 2, for level and drift."""
    uptime_variance: tuple[float, ...] = tuple(sd**2 for sd in UPTIME_SD)
    """Variance of each coefficient of the time since the start: that of `UPTIME_SD`, or the square of this baseline's
    own coefficient if it is larger."""
    scatter: tuple[tuple[float, float], ...] = PRESENT.scatter
    """Probabilities of standard deviations of the level between processes."""
    process_degrees: float | None = None
    """Degrees of freedom of the only standard deviation of `scatter`; None where its probabilities were weighed."""

    @property
    def process_variance(self) -> float:
        """Variance of the level between processes."""
        return sum(odds * sd**2 for odds, sd in self.scatter)

    @property
    def penalties(self) -> Penalties:
        """Weights of the squares of coefficients in a fit."""
        variance = self.long_run_variance
        return Penalties(
            variance / self.drift_variance,
            tuple(variance / uptime for uptime in self.uptime_variance),
            variance / max(self.process_variance, 1e-12),
        )

    @property
    def long_run_variance(self) -> float:
        """Variance of a mean of n buckets, times n."""
        return max(1e-12, float(self.autocovariance[0] + 2 * self.autocovariance[1:].sum()))

    @property
    def theta(self) -> float:
        """Variance within over variance between buckets of the week; infinite if weeks do not repeat."""
        return self.within_variance / self.phase_variance if self.phase_variance > 0 else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Coefficients fitted to some buckets."""

    covariates: Floats
    drift: float
    """Per week."""
    phases: Floats
    """Effect of each bucket of the week."""
    level: float
    processes: Floats
    """Level of each process of the engine about it; empty where restarts do not matter."""


class Fit:
    """Fit of coefficients to the buckets of a baseline, and of the weights of every bucket in an effect."""

    def __init__(self, grid: BucketGrid, base: Mask, theta: float, penalties: Penalties = Penalties()) -> None:
        self._grid, self._base = grid, base
        self._processes = int(grid.process.max(initial=0)) + 1
        self._phases = grid.cycle.buckets
        self._phase = grid.phase[base]
        self._middle = float(np.flatnonzero(base).mean())
        self._x = self._design(base)
        count = np.bincount(self._phase, minlength=self._phases)
        self._shrunk = np.zeros(self._phases) if math.isinf(theta) else 1 / (count + max(theta, 1e-6))
        n, p = self._x.shape
        self._x_of = np.zeros((self._phases, p))
        np.add.at(self._x_of, self._phase, self._x)
        self._mx = self._x - (self._x_of * self._shrunk[:, None])[self._phase]
        penalty = np.full(p, _RIDGE * n)
        penalty[0] = 0.0
        for column, weight in zip(self._uptime, penalties.uptime, strict=False):
            penalty[column] += weight
        penalty[self._levels] += min(penalties.process, 1e12)
        penalty[-1] = min(penalties.drift, 1e12)
        self._inverse = np.linalg.inv(self._x.T @ self._mx + np.diag(penalty))
        self.parameters = p + float((count * self._shrunk).sum())

    def _design(self, mask: Mask) -> Floats:
        """Return level, covariates, processes and weeks since the middle of the baseline."""
        design = self._grid.design[mask]
        design[:, -1] = (np.flatnonzero(mask) - self._middle) / self._phases
        return design

    @property
    def _uptime(self) -> list[int]:
        return [1 + column for column, name in enumerate(self._grid.columns) if name is Covariate.UPTIME]

    @property
    def _levels(self) -> slice:
        return slice(1 + self._grid.covariates.shape[1], -1)

    def baseline(self, cost: Floats) -> Baseline:
        """Return the coefficients for the costs of all buckets of the grid."""
        y = cost[self._base]
        beta = self._inverse @ (self._mx.T @ y)
        phases = self._shrunk * np.bincount(self._phase, y - self._x @ beta, self._phases)
        return Baseline(beta[1 : self._levels.start], float(beta[-1]), phases, float(beta[0]), beta[self._levels])

    def predicted(self, fitted: Baseline, mask: Mask) -> Floats:
        """Return the expected log cost of some buckets."""
        beta = np.concatenate([[fitted.level], fitted.covariates, fitted.processes, [fitted.drift]])
        expected: Floats = self._design(mask) @ beta + fitted.phases[self._grid.phase[mask]]
        return expected

    def weights(self, after: Mask) -> Floats:
        """Return the weight of each bucket in the mean of actual minus predicted log cost over `after`."""
        x_after = self._design(after).mean(axis=0)
        phases = np.bincount(self._grid.phase[after], minlength=self._phases) / after.sum()
        z = phases * self._shrunk
        beta_part = self._inverse @ (x_after - z @ self._x_of)
        weights = np.zeros(len(self._grid))
        weights[self._base] = -(self._mx @ beta_part + z[self._phase])
        weights[after] += 1 / after.sum()
        return weights

    def visible(self, fitted: Baseline, noise: Noise) -> tuple[float, tuple[float, ...]]:
        """Return the squares of the drift and of the coefficients of uptime that noise does not explain.

        The fit has no penalties.
        """
        errors = noise.long_run_variance * np.diag(self._inverse)
        uptime = [fitted.covariates[column - 1] ** 2 - errors[column] for column in self._uptime]
        return float(fitted.drift**2 - errors[-1]), tuple(map(float, uptime))

    def process_covariance(self, noise: Noise, drift_variance: float) -> Floats:
        """Return the covariance that noise and drift cause in levels of processes fitted without a penalty."""
        process = self._grid.process[self._base]
        hours = np.maximum(np.bincount(process, minlength=self._processes), 1)
        week = np.bincount(process, np.flatnonzero(self._base) / self._phases, self._processes) / hours
        by_noise = noise.long_run_variance * self._inverse[self._levels, self._levels]
        covariance: Floats = by_noise + drift_variance * np.outer(week, week)
        return covariance

    def variance(self, weights: Floats, noise: Noise) -> float:
        """Return the variance of the sum of costs with these weights, without the differences between processes.

        Its parts are noise, drift, time since the start and buckets of the week.
        """
        lags = _autocorrelation(weights, len(noise.autocovariance))
        noise_variance = lags[0] * noise.autocovariance[0] + 2 * float(lags[1:] @ noise.autocovariance[1:])
        weeks = (np.arange(len(weights)) - self._middle) / self._phases
        drift_variance = float(weights @ weeks) ** 2 * noise.drift_variance
        uptime = (weights @ self._grid.covariates[:, [column - 1 for column in self._uptime]]) ** 2
        by_phase = np.bincount(self._grid.phase, weights, self._phases)
        fit_variance = drift_variance + float(uptime @ noise.uptime_variance[: len(uptime)])
        return float(max(noise_variance, 0.0) + fit_variance + float(by_phase @ by_phase) * noise.phase_variance)

    def between_processes(self, weights: Floats) -> float:
        """Return the standard deviation of the sum of costs with these weights, in units of process levels."""
        return float(np.linalg.norm(np.bincount(self._grid.process, weights))) if self._processes > 1 else 0.0


def noise_of(
    grid: BucketGrid, cost: Floats, base: Mask, method: Method = PRESENT, *, drifts: bool = True
) -> tuple[Noise, Fit]:
    """Return the noise of the costs of a baseline, and the fit to it. `drifts`: whether to fit a drift."""
    first = Fit(grid, base, 1.0)
    fitted = first.baseline(cost)
    residuals = cost[base] - first.predicted(fitted, base) + fitted.phases[grid.phase[base]]
    count = np.bincount(grid.phase[base], minlength=grid.cycle.buckets)
    repeated = count > 1
    mean = np.bincount(grid.phase[base], residuals, grid.cycle.buckets)[repeated] / count[repeated]
    square = np.bincount(grid.phase[base], residuals**2, grid.cycle.buckets)[repeated]
    freedom = max(1.0, float((count[repeated] - 1).sum()))
    within = float((square - count[repeated] * mean**2).sum() / freedom)
    between = max(0.0, float((mean**2).mean() - within * (1 / count[repeated]).mean())) if repeated.any() else 0.0
    rough = _noise(grid, residuals, base, first.parameters, between, within)
    rough = _with_processes(
        replace(rough, scatter=method.scatter, process_degrees=method.scatter_degrees), first, fitted, grid, base
    )
    free = Fit(grid, base, rough.theta, Penalties(0.0 if drifts else math.inf, process=rough.penalties.process))
    drift, uptime = free.visible(free.baseline(cost), rough)
    rough = replace(
        rough,
        drift_variance=max(rough.drift_variance, drift),
        uptime_variance=tuple(map(max, rough.uptime_variance, uptime)) or rough.uptime_variance,
    )
    penalties = rough.penalties if drifts else replace(rough.penalties, drift=math.inf)
    fit = Fit(grid, base, rough.theta, penalties)
    fitted = fit.baseline(cost)
    noise = _noise(grid, cost[base] - fit.predicted(fitted, base), base, fit.parameters, between, within)
    return replace(rough, autocovariance=noise.autocovariance, degrees=noise.degrees), fit


def _with_processes(noise: Noise, free: Fit, fitted: Baseline, grid: BucketGrid, base: Mask) -> Noise:
    """Return the noise with the scatter between processes by their fitted levels.

    `free`: the fit without a penalty on the levels, and so without shrinkage.
    """
    hours = np.bincount(grid.process[base], minlength=max(1, len(fitted.processes)))
    used = np.flatnonzero(hours >= grid.cycle.buckets_of(MIN_PROCESS_DAYS))
    if len(used) < 2:
        return noise
    levels = fitted.processes[used]
    drift_variance = noise.drift_variance if noise.process_degrees is None else 0.0
    covariance = free.process_covariance(noise, drift_variance)[np.ix_(used, used)]
    if noise.process_degrees is None:
        return replace(noise, scatter=_weighed(noise.scatter, levels, covariance))
    return _averaged(noise, noise.process_degrees, levels, covariance)


def _weighed(
    scatter: tuple[tuple[float, float], ...], levels: Floats, covariance: Floats
) -> tuple[tuple[float, float], ...]:
    """Return the odds of each scatter: the prior, times how well it fits the levels of processes.

    Their mean is unknown, so that the likelihood is that of the differences between them (restricted maximum
    likelihood).
    """
    odds, sds = np.array(scatter).T
    contrasts = np.linalg.svd(np.ones((1, len(levels))))[2][1:]
    variances, directions = np.linalg.eigh(contrasts @ covariance @ contrasts.T)
    squares = (directions.T @ contrasts @ levels) ** 2
    total = np.maximum(variances, 1e-12) + sds[:, None] ** 2
    likelihood = -(np.log(total) + squares / total).sum(axis=1) / 2
    odds = odds * np.exp(likelihood - likelihood.max())
    if len(levels) < MIN_ALIKE_PROCESSES:
        odds[0] = 0.0
    return tuple(zip(map(float, odds / odds.sum()), map(float, sds), strict=True))


def _averaged(noise: Noise, prior_degrees: float, levels: Floats, covariance: Floats) -> Noise:
    """Return the noise with one scatter, as methods 1 and 2 have it: the mean of the measured variance and the prior.

    The scatter that noise causes is subtracted (method of moments), and levels that are mostly noise count as fewer.
    """
    prior, count = noise.process_variance, len(levels)
    noisy = float(np.trace(covariance) - covariance.sum() / count) / (count - 1)
    measured = max(0.0, float(levels.var(ddof=1)) - noisy)
    likely = max(measured, prior)
    degrees = (count - 1) * (likely / (likely + max(0.0, noisy))) ** 2
    total = prior_degrees + degrees
    variance = (prior_degrees * prior + degrees * measured) / total
    return replace(noise, scatter=((1.0, math.sqrt(variance)),), process_degrees=total)


def _noise(grid: BucketGrid, residuals: Floats, base: Mask, parameters: float, between: float, within: float) -> Noise:
    n = len(residuals)
    dense = np.zeros(len(grid))
    dense[base] = residuals - residuals.mean()
    length = max(2, min(BLOCK, n // MIN_BLOCKS))
    pairs = np.maximum(_autocorrelation(base.astype(np.float64), length), 1)
    bartlett = 1 - np.arange(length) / length
    # The number of blocks is the number of independent values that level and drift are fitted to.
    degrees = max(1.0, n / length - 2)
    free = n / max(n - parameters, n / 4) * (degrees + 2) / degrees
    covariance = _autocorrelation(dense, length) / pairs * bartlett * free
    return Noise(covariance, between, within, DRIFT_PER_WEEK**2, degrees)


def _autocorrelation(values: Floats, lags: int) -> Floats:
    """Return the sums of products of values at lags from 0 to `lags` - 1."""
    size = 1 << (len(values) + lags).bit_length()
    spectrum = np.fft.rfft(values, size)
    sums: Floats = np.fft.irfft(np.abs(spectrum) ** 2, size)[:lags]
    return sums
