"""Effect of a change on log cost against a baseline, with its uncertainty."""

import math
from dataclasses import dataclass

from pertoken.proof.verification.baseline import Fit, noise_of
from pertoken.proof.verification.grid import Grid
from pertoken.proof.verification.method import PRESENT, Method
from pertoken.window.columns import Floats, Mask
from pertoken.window.epochs.like_for_like import Z95, student_quantile

Z90 = 1.2815515655446004
"""90 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Mean log cost after a change minus the expectation of the baseline: below 0 is cheaper."""

    log_ratio: float
    standard_error: float
    degrees: float

    @property
    def half_width_90(self) -> float:
        """Half the width of the 90 % interval of `log_ratio`."""
        return student_quantile(Z95, self.degrees) * self.standard_error

    @property
    def half_width_80(self) -> float:
        """Half the width of the 80 % interval of `log_ratio`."""
        return student_quantile(Z90, self.degrees) * self.standard_error

    def widened(self, factor: float) -> "Effect":
        """Return the effect with intervals that are wider by a factor."""
        return Effect(self.log_ratio, self.standard_error * factor, self.degrees)

    def spanning(self, other: "Effect") -> "Effect":
        """Return an effect whose 90 % interval spans that of both."""
        low = min(self.log_ratio - self.half_width_90, other.log_ratio - other.half_width_90)
        high = max(self.log_ratio + self.half_width_90, other.log_ratio + other.half_width_90)
        error = (high - low) / 2 / student_quantile(Z95, self.degrees)
        return Effect((low + high) / 2, error, self.degrees)


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
    """Return the saving as a fraction of the device-seconds per token: 0.1 is 10 % less."""
    low, likely, high = (1 - math.exp(effect.log_ratio + value) for value in (half_width, 0.0, -half_width))
    return Interval(low, likely, high)


class Estimator:
    """Estimator of effects at any date of one history, with the noise of its whole baseline."""

    def __init__(self, grid: Grid, cost: Floats, base: Mask, method: Method = PRESENT) -> None:
        self.grid, self.cost, self.method = grid, cost, method
        self.noise, self.fit = noise_of(grid, cost, base)

    def effect(self, base: Mask, after: Mask) -> Effect:
        """Return the effect in the buckets `after` against a baseline fitted to `base`."""
        fit = self.fitted(base)
        weights = fit.weights(after)
        return self._effect(fit, weights, float(weights @ self.cost))

    def without_effect(self, base: Mask, after: Mask) -> Effect:
        """Return an effect of 0 over `after` with its uncertainty, which does not depend on the costs there."""
        fit = self.fitted(base)
        return self._effect(fit, fit.weights(after), 0.0)

    def predicted(self, base: Mask, buckets: Mask) -> Floats:
        """Return the log cost that a baseline fitted to `base` expects in `buckets`."""
        fit = self.fitted(base)
        return fit.predicted(fit.baseline(self.cost), buckets)

    def fitted(self, base: Mask) -> Fit:
        """Return the fit to a part of the history."""
        return Fit(self.grid, base, self.noise.theta, self.noise.penalties)

    def _effect(self, fit: Fit, weights: Floats, log_ratio: float) -> Effect:
        """Return an effect. Its degrees of freedom are those of two variances added (Satterthwaite 1946)."""
        within = fit.variance(weights, self.noise) + self.method.level_sd**2
        between = fit.variance_between_processes(weights, self.noise)
        parts = within**2 / self.noise.degrees + between**2 / self.noise.process_degrees
        return Effect(log_ratio, math.sqrt(within + between), (within + between) ** 2 / parts)
