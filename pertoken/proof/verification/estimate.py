"""Effect of a change on log cost against a baseline, with its uncertainty."""

import math
from dataclasses import dataclass, replace

from pertoken.proof.verification.baseline import Fit, noise_of
from pertoken.proof.verification.grid import Grid
from pertoken.proof.verification.method import PRESENT, Method
from pertoken.window.columns import Floats, Mask
from pertoken.window.like_for_like import Z95, student_quantile

Z90 = 1.2815515655446004
"""90 % quantile of the normal distribution."""
Z995 = 2.5758293035489004
"""99.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Mean log cost after a change minus the expectation of the baseline: below 0 is cheaper."""

    log_ratio: float
    standard_error: float
    """Without what the restart adds."""
    degrees: float
    """Degrees of freedom of `standard_error`."""
    restart: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    """What the restart adds: the probability of each standard deviation."""

    @property
    def half_width_90(self) -> float:
        """Half the width of the 90 % interval of `log_ratio`."""
        return self._half_width(Z95, Z95)

    @property
    def half_width_80(self) -> float:
        """Half the width of the 80 % interval of `log_ratio`."""
        return self._half_width(Z90, Z90)

    @property
    def half_width_99(self) -> float:
        """Half the width of the 99 % interval, widened like that of 90 %: what a proven effect exceeds.

        It matters where a restart rarely adds much: twice the half-width of 90 % leaves out less than 0.1 % of a normal
        distribution, and much more of such a mixture.
        """
        return self._half_width(Z995, Z95)

    @property
    def total_error(self) -> float:
        """Standard error with what the restart adds."""
        return math.sqrt(self.standard_error**2 + sum(odds * sd**2 for odds, sd in self.restart))

    def _half_width(self, z: float, widened_z: float) -> float:
        """Return the half-width that a mixture of normal distributions exceeds as rarely as one of them exceeds `z`.

        It is widened as Student's t is at the quantile `widened_z`, because the standard error is an estimate.
        """
        spread = [(odds, math.hypot(self.standard_error, sd) * math.sqrt(2)) for odds, sd in self.restart]
        low, high = (z / math.sqrt(2) * pick(error for _, error in spread) for pick in (min, max))
        rare = math.erfc(z / math.sqrt(2))
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            beyond = sum([odds * math.erfc(middle / error) for odds, error in spread])
            low, high = (middle, high) if beyond > rare else (low, middle)
        return high * student_quantile(widened_z, self.degrees) / widened_z

    def widened(self, factor: float) -> "Effect":
        """Return the effect with intervals that are wider by a factor."""
        restart = tuple((odds, sd * factor) for odds, sd in self.restart)
        return Effect(self.log_ratio, self.standard_error * factor, self.degrees, restart)

    def spanning(self, other: "Effect") -> "Effect":
        """Return an effect whose 90 % interval spans that of both."""
        low = min(self.log_ratio - self.half_width_90, other.log_ratio - other.half_width_90)
        high = max(self.log_ratio + self.half_width_90, other.log_ratio + other.half_width_90)
        return replace(self.widened((high - low) / 2 / self.half_width_90), log_ratio=(low + high) / 2)


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
        self.noise, self.fit = noise_of(grid, cost, base, method)

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
        within = fit.variance(weights, self.noise) + self.method.level_sd**2
        between = fit.between_processes(weights)
        if self.noise.process_degrees is not None:  # two variances added (Satterthwaite 1946)
            added = between**2 * self.noise.process_variance
            parts = within**2 / self.noise.degrees + added**2 / self.noise.process_degrees
            return Effect(log_ratio, math.sqrt(within + added), (within + added) ** 2 / parts)
        restart = tuple((odds, between * sd) for odds, sd in self.noise.scatter)
        return Effect(log_ratio, math.sqrt(within), self.noise.degrees, restart)
