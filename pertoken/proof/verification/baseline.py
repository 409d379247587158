"""Predicted cost of a token without the change: the baseline, and the uncertainty of the mean of its predictions.

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
"""Standard deviation of the drift of log cost in a week for which no cause is known. A judgement; a baseline that
clearly drifts more is taken at its own drift."""
BLOCK = 48
"""Buckets of a block. Bartlett weights of this length keep 96 % of the variance of a mean of AR(1) noise of 0.6."""
MIN_BLOCKS = 12
"""Blocks that a baseline is cut into at least: those of a short one are shorter."""
_RIDGE = 1e-9
"""Part of the observations by which covariates are penalised, so that one that never varies has no coefficient."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """Scatter of the costs of one deployment about its baseline."""

    autocovariance: Floats
    """By distance in buckets, from 0 on, with Bartlett weights: those of a block bootstrap with blocks of this length
    (Politis and Romano 1992), resampled without end."""
    phase_variance: float
    """Of the effects of buckets of the week."""
    within_variance: float
    """Of a bucket about them."""
    drift_variance: float
    """Of the drift in a week: that of `DRIFT_PER_WEEK`, or what this baseline shows where that is more."""
    degrees: float
    """Blocks in the baseline, less level and drift: degrees of freedom of the variance."""

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
        """Noise over effect of a bucket of the week, as variances: infinite where weeks do not repeat."""
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
    """Sums over the buckets of a baseline, from which coefficients and weights are computed."""

    def __init__(self, of: Grid, base: Mask, theta: float, drift_penalty: float) -> None:
        """`drift_penalty`: infinite for none."""
        self._grid, self._base = of, base
        self._phases = of.cycle.buckets
        self._phase = of.phase[base]
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
        """Return what each bucket counts in the mean of actual minus predicted log cost over `after`."""
        x_after = self._design(after).mean(axis=0)
        phases = np.bincount(self._grid.phase[after], minlength=self._phases) / after.sum()
        z = phases * self._shrunk
        beta_part = self._inverse @ (x_after - z @ self._x_of)
        weights = np.zeros(len(self._grid))
        weights[self._base] = -(self._mx @ beta_part + z[self._phase])
        weights[after] += 1 / after.sum()
        return weights

    def drift_error(self, noise: Noise) -> float:
        """Return the standard error of the drift, where it was fitted without a penalty."""
        return math.sqrt(noise.long_run_variance * float(self._inverse[-1, -1]))

    def variance(self, weights: Floats, noise: Noise) -> float:
        """Return the variance of the sum of costs with these weights: noise, drift and buckets of the week."""
        lags = _autocorrelation(weights, len(noise.autocovariance))
        of_noise = lags[0] * noise.autocovariance[0] + 2 * float(lags[1:] @ noise.autocovariance[1:])
        weeks = (np.arange(len(weights)) - self._middle) / self._phases
        of_drift = float(weights @ weeks) ** 2 * noise.drift_variance
        by_phase = np.bincount(self._grid.phase, weights, self._phases)
        return float(max(of_noise, 0.0) + of_drift + float(by_phase @ by_phase) * noise.phase_variance)


def noise_of(of: Grid, cost: Floats, base: Mask, *, drifts: bool = True) -> tuple[Noise, Fit]:
    """Return how costs scatter in a baseline, and the fit to it. `drifts`: whether a drift is fitted."""
    first = Fit(of, base, 1.0, math.inf)
    fitted = first.baseline(cost)
    residuals = cost[base] - first.predicted(fitted, base) + fitted.phases[of.phase[base]]
    count = np.bincount(of.phase[base], minlength=of.cycle.buckets)
    several = count > 1
    mean = np.bincount(of.phase[base], residuals, of.cycle.buckets)[several] / count[several]
    square = np.bincount(of.phase[base], residuals**2, of.cycle.buckets)[several]
    freedom = max(1.0, float((count[several] - 1).sum()))
    within = float((square - count[several] * mean**2).sum() / freedom)
    between = max(0.0, float((mean**2).mean() - within * (1 / count[several]).mean())) if several.any() else 0.0
    rough = _noise(of, residuals, base, first.parameters, between, within)
    if drifts:
        free = Fit(of, base, rough.theta, 0.0)
        drift = free.baseline(cost).drift
        visible = drift**2 - free.drift_error(rough) ** 2
        rough = replace(rough, drift_variance=max(rough.drift_variance, visible))
    fit = Fit(of, base, rough.theta, rough.drift_penalty if drifts else math.inf)
    fitted = fit.baseline(cost)
    noise = _noise(of, cost[base] - fit.predicted(fitted, base), base, fit.parameters, between, within)
    return replace(noise, drift_variance=rough.drift_variance), fit


def _noise(of: Grid, residuals: Floats, base: Mask, parameters: float, between: float, within: float) -> Noise:
    n = len(residuals)
    dense = np.zeros(len(of))
    dense[base] = residuals - residuals.mean()
    length = max(2, min(BLOCK, n // MIN_BLOCKS))
    pairs = np.maximum(_autocorrelation(base.astype(np.float64), length), 1)
    bartlett = 1 - np.arange(length) / length
    # Level and drift are fitted to as many independent values as there are blocks.
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
