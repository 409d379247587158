"""Baseline: predicted cost of a token without the change, and the uncertainty of its mean.

The log cost of a bucket is a smooth function of load, mix and cache level, an effect of its bucket of the week, a drift
in time and noise that is correlated over some buckets. The bucket of the week enters as in CUPED (Deng, Xu, Kohavi and
Walker, WSDM 2013): the mean of the same bucket in the weeks before, times the part of it that is not noise. The drift
is shrunk towards none. The prediction is a weighted sum of the costs before the change, so that its variance is a
quadratic form in the autocovariance of the noise.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from pertoken.proof.verification.grid import Grid
from pertoken.window.columns import Floats, Mask

DRIFT_PER_WEEK = 0.003
"""Standard deviation of the weekly drift of log cost without a known cause. A judgement; a baseline with clearly more
drift keeps its own."""
BLOCK = 48
"""Buckets of a block. Bartlett weights of this length keep 96 % of the variance of a mean of AR(1) noise of 0.6."""
MIN_BLOCKS = 12
"""Minimum number of blocks of a baseline: a short baseline has shorter blocks."""
_RIDGE = 1e-9
"""Penalty on covariates per observation, so that a constant covariate has coefficient 0."""


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

    @property
    def drift_penalty(self) -> float:
        """Weight of the square of the drift in a fit."""
        return self.long_run_variance / self.drift_variance

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


class Fit:
    """Fit of coefficients to the buckets of a baseline, and of the weights of every bucket in an effect."""

    def __init__(self, grid: Grid, base: Mask, theta: float, drift_penalty: float) -> None:
        """`drift_penalty`: infinite for none."""
        self._grid, self._base = grid, base
        self._phases = grid.cycle.buckets
        self._phase = grid.phase[base]
        self._middle = float(np.flatnonzero(base).mean())
        self._x = self._design(base)
        count = np.bincount(self._phase, minlength=self._phases)
        self._shrunk = np.zeros(self._phases) if math.isinf(theta) else 1 / (count + max(theta, 1e-6))
        n, p = self._x.shape
        self._x_of = np.column_stack([self._by_phase(self._x[:, column]) for column in range(p)])
        self._mx = self._x - (self._x_of * self._shrunk[:, None])[self._phase]
        penalty = np.full(p, _RIDGE * n)
        penalty[0] = 0.0
        penalty[-1] = min(drift_penalty, 1e12)
        self._inverse = np.linalg.inv(self._x.T @ self._mx + np.diag(penalty))
        self.parameters = p + float((count * self._shrunk).sum())

    def _design(self, mask: Mask) -> Floats:
        """Return level, covariates and weeks since the middle of the baseline."""
        at = np.flatnonzero(mask)
        weeks = (at - self._middle) / self._phases
        return np.column_stack([np.ones(len(at)), self._grid.covariates[at], weeks])

    def _by_phase(self, values: Floats) -> Floats:
        return np.bincount(self._phase, values, self._phases).astype(np.float64)

    def baseline(self, cost: Floats) -> Baseline:
        """Return the coefficients for the costs of all buckets of the grid."""
        y = cost[self._base]
        beta = self._inverse @ (self._mx.T @ y)
        phases = self._shrunk * self._by_phase(y - self._x @ beta)
        return Baseline(beta[1:-1], float(beta[-1]), phases, float(beta[0]))

    def predicted(self, fitted: Baseline, mask: Mask) -> Floats:
        """Return the expected log cost of some buckets."""
        beta = np.concatenate([[fitted.level], fitted.covariates, [fitted.drift]])
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

    def drift_error(self, noise: Noise) -> float:
        """Return the standard error of a drift fitted without a penalty."""
        return math.sqrt(noise.long_run_variance * float(self._inverse[-1, -1]))

    def variance(self, weights: Floats, noise: Noise) -> float:
        """Return the variance of the sum of costs with these weights: noise, drift and buckets of the week."""
        lags = _autocorrelation(weights, len(noise.autocovariance))
        noise_variance = lags[0] * noise.autocovariance[0] + 2 * float(lags[1:] @ noise.autocovariance[1:])
        weeks = (np.arange(len(weights)) - self._middle) / self._phases
        drift_variance = float(weights @ weeks) ** 2 * noise.drift_variance
        by_phase = np.bincount(self._grid.phase, weights, self._phases)
        return float(max(noise_variance, 0.0) + drift_variance + float(by_phase @ by_phase) * noise.phase_variance)


def noise_of(grid: Grid, cost: Floats, base: Mask, *, drifts: bool = True) -> tuple[Noise, Fit]:
    """Return the noise of the costs of a baseline, and the fit to it. `drifts`: whether to fit a drift."""
    first = Fit(grid, base, 1.0, math.inf)
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
    if drifts:
        free = Fit(grid, base, rough.theta, 0.0)
        drift = free.baseline(cost).drift
        visible = drift**2 - free.drift_error(rough) ** 2
        rough = replace(rough, drift_variance=max(rough.drift_variance, visible))
    fit = Fit(grid, base, rough.theta, rough.drift_penalty if drifts else math.inf)
    fitted = fit.baseline(cost)
    noise = _noise(grid, cost[base] - fit.predicted(fitted, base), base, fit.parameters, between, within)
    return replace(noise, drift_variance=rough.drift_variance), fit


def _noise(grid: Grid, residuals: Floats, base: Mask, parameters: float, between: float, within: float) -> Noise:
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
