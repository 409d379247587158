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
# Chosen on machines that nobody changed, whose levels jump by about a percent for no recorded reason.
PRESENT = Method(2, level_sd=0.005)
METHODS: Mapping[int, Method] = {method.number: method for method in (FIRST, PRESENT)}
