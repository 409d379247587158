"""Measured series that remember being read, so that what a recommendation shows is what its rule used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pertoken.metrics import SERIES
from pertoken.provenance import Provenance


class NotMeasured(Exception):
    """A rule read a series that was not measured; the advisor reports the rule as blocked, with the remedy."""

    def __init__(self, series: str, remedy: str) -> None:
        super().__init__(f"{series} was not measured: {remedy}")
        self.series = series
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Series:
    """Summary of one measured series over the window, in the unit of its spec.

    `n` counts the observations behind it (minutes, or requests for lengths and latencies); quantiles are of
    those observations, exact to the bucket where they come from a histogram.
    """

    mean: float
    p50: float
    p95: float
    max: float
    n: int
    provenance: Provenance
    buckets: tuple[tuple[float, float], ...] = ()
    """(upper bound, observations in it), rising, of the histogram it comes from; empty where there was none."""


class Evidence:
    """What was measured, by attribute: `seen.running.p95`. Remembers, in order, which series were read."""

    def __init__(self, series: Mapping[str, Series], remedies: Mapping[str, str] | None = None) -> None:
        unknown = sorted(set(series) - set(SERIES))
        if unknown:
            raise ValueError(f"not a series: {', '.join(unknown)}; known: {', '.join(SERIES)}")
        self._series = dict(series)
        self._remedies = dict(remedies or {})
        self._read: dict[str, None] = {}

    def __getattr__(self, name: str) -> Series:
        if name.startswith("_") or name not in SERIES:
            raise AttributeError(f"no series {name!r}; known: {', '.join(SERIES)}")
        self._read[name] = None
        try:
            return self._series[name]
        except KeyError:
            raise NotMeasured(name, self._remedies.get(name, SERIES[name].remedy)) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *SERIES]

    def has(self, name: str) -> bool:
        """Whether a series was measured; asking counts as reading it."""
        try:
            getattr(self, name)
        except NotMeasured:
            return False
        return True

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the series read so far, in the order of first reading."""
        return tuple(self._read)

    def fresh(self) -> "Evidence":
        """The same measurements with nothing read yet: one for each rule."""
        return Evidence(self._series, self._remedies)

    def items(self) -> Iterable[tuple[str, Series]]:
        """All measured series by name, without counting as reading."""
        return self._series.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evidence) and self._series == other._series

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._series)))
