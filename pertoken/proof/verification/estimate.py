"""The effect of a change on log cost, with its uncertainty, against a baseline."""

import math
from dataclasses import dataclass

from pertoken.proof.verification.baseline import Fit, noise_of
from pertoken.proof.verification.grid import Grid
from pertoken.window.columns import Floats, Mask
from pertoken.window.epochs.like_for_like import Z95, student_quantile

Z90 = 1.2815515655446004
"""90 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Log cost after a change over what the baseline expects: below 0 is cheaper."""

    log_ratio: float
    standard_error: float
    degrees: float

    @property
    def half_width_90(self) -> float:
        """Half the width of the 90 % interval of `log_ratio`."""
        return student_quantile(Z95, self.degrees) * self.standard_error

    @property
    def half_width_80(self) -> float:
        """Half the width of its 80 % interval."""
        return student_quantile(Z90, self.degrees) * self.standard_error

    def widened(self, factor: float) -> "Effect":
        """Return the same effect with intervals wider by a factor."""
        return Effect(self.log_ratio, self.standard_error * factor, self.degrees)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with an interval."""

    low: float
    likely: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of high minus low."""
        return (self.high - self.low) / 2


def saving(effect: Effect, half_width: float) -> Interval:
    """Return the saving as a fraction of the device-seconds per token: 0.1 is a tenth less."""
    low, likely, high = (1 - math.exp(effect.log_ratio + value) for value in (half_width, 0.0, -half_width))
    return Interval(low, likely, high)


class Estimator:
    """Estimates of effects at any date within one history, all with the noise of its whole baseline."""

    def __init__(self, of: Grid, cost: Floats, base: Mask) -> None:
        self.of, self.cost = of, cost
        self.noise, self.fit = noise_of(of, cost, base)

    def effect(self, base: Mask, after: Mask) -> Effect:
        """Return the effect that the costs of `after` show against those of `base`."""
        fit = self.fitted(base)
        weights = fit.weights(after)
        return Effect(float(weights @ self.cost), self._error(fit, weights), self.noise.degrees)

    def standard_error(self, base: Mask, after: Mask) -> float:
        """Return the standard error that an effect over `after` has, whatever its costs."""
        fit = self.fitted(base)
        return self._error(fit, fit.weights(after))

    def predicted(self, base: Mask, at: Mask) -> Floats:
        """Return the expected log cost of some buckets by the baseline of others."""
        fit = self.fitted(base)
        return fit.predicted(fit.baseline(self.cost), at)

    def fitted(self, base: Mask) -> Fit:
        """Return the fit to a part of the history."""
        return Fit(self.of, base, self.noise.theta, self.noise.drift_penalty)

    def _error(self, fit: Fit, weights: Floats) -> float:
        return math.sqrt(fit.variance(weights, self.noise))
