"""Provenance of a number, best to worst. The worst one wins when numbers are combined."""

from collections.abc import Iterable
from enum import IntEnum


class Provenance(IntEnum):
    """Origin of a value. Stored as its integer; compared by it: a higher one is less certain."""

    COUNTER = 0
    """Difference of a monotonic counter (tokens, joules): exact over the window."""
    INTEGRAL = 1
    """Sum of sampled values over time: as good as the sampling."""
    REPORTED = 2
    """A gauge an engine or a driver reported."""
    FORECAST = 3
    """Computed by the serving model."""
    LISTED = 4
    """Read from the catalog, with its source and date."""
    ASSUMED = 5
    """A stated assumption."""
    BOUND = 6
    """An upper bound: the true value is at most this. A sum with one bound among its parts is a bound."""

    @classmethod
    def of_stored(cls, number: int) -> "Provenance":
        """Return the origin that a database holds; a number that is none is the least certain one."""
        return cls(number) if 0 <= number <= cls.BOUND else cls.BOUND

    @property
    def label(self) -> str:
        """The word shown to people: ``counter``, ``integral``, ..."""
        return self.name.lower()


def worst(origins: Iterable[Provenance]) -> Provenance:
    """Return the provenance of a value combined from values of these origins.

    Raises ValueError when there is none, since a value from nothing has no origin.
    """
    return max(origins)
