"""Methods of verification, by number: a receipt is recomputed by the method that it was made with.

A change of the estimate that moves a figure of a receipt adds a method. The values of the earlier ones stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.proof.verification.question import Covariate


@dataclass(frozen=True, slots=True)
class Method:
    """Constants in which the methods of verification differ."""

    number: int
    level_sd: float
    """Standard deviation of the difference of the levels of two weeks that no hour of a quiet baseline shows."""
    scatter: tuple[tuple[float, float], ...] = ((1.0, 0.03),)
    """Probabilities of standard deviations of log cost between starts of one engine, before any start is measured."""
    scatter_degrees: float | None = 0.5
    """Number of starts that this prior counts as, if it is averaged with the measured scatter; None if it is weighed
    by how well it explains the levels of measured starts."""
    covariates: tuple[Covariate, ...] = tuple(Covariate)
    """Covariates that hours may be matched in."""
    separates_restarts: bool = True
    """Whether a change is refused that cannot be separated from its restart."""
    compares_siblings: bool = True
    """Whether siblings are compared with each other, and their common change widens the interval."""


FIRST = Method(
    1,
    level_sd=0.0,
    covariates=(Covariate.LOAD, Covariate.MIX, Covariate.CACHE),
    separates_restarts=False,
    compares_siblings=False,
)
# The level was chosen on machines that nobody changed, whose levels jump by about a percent for no recorded reason.
SECOND = Method(2, level_sd=0.005)
# In public benchmarks repeated on one engine version, half of the repeats differ by less than 1 %, and one in ten by
# more than 8 %. By this prior 0.55 and 0.22 do: it is wide on purpose. A judgement.
PRESENT = Method(
    3,
    level_sd=0.005,
    scatter=((0.5, 0.0), (0.1, 0.02), (0.1, 0.04), (0.1, 0.08), (0.1, 0.16), (0.1, 0.32)),
    scatter_degrees=None,
)
METHODS: Mapping[int, Method] = {method.number: method for method in (FIRST, SECOND, PRESENT)}
