"""Measured series that remember being read, so that a recommendation shows the series that its rule used."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Protocol

from pertoken.metrics import SERIES, label_of
from pertoken.provenance import Provenance


class NotMeasured(Exception):
    """A rule read a series that was not measured; the advisor reports the rule as blocked, with the remedy."""

    def __init__(self, series: str, remedy: str) -> None:
        super().__init__(f"{series} was not measured: {remedy}")
        self.series = series
        self.remedy = remedy

    @property
    def sentence(self) -> str:
        """Label of the series and how to measure it, for people; the text of the exception has its name."""
        return f"{label_of(self.series)} was not measured: {self.remedy}"

    def __reduce__(self) -> tuple[type["NotMeasured"], tuple[str, str]]:
        return NotMeasured, (self.series, self.remedy)


HoursOfWeek = tuple[float | None, ...]
"""168 means, Monday 00:00 UTC first; None where nothing was observed."""


class Distribution(Protocol):
    """All observations of a series, looked at when somebody asks for more than its summary."""

    def quantile(self, q: float) -> float:
        """Return the weighted quantile."""
        ...

    def hours(self) -> HoursOfWeek:
        """Return the mean of each hour of the week."""
        ...


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
    by_hour: bool = False
    """Whether hours stand for minutes, which were deleted or too many: a peak within an hour is not seen then."""
    distribution: Distribution | None = field(default=None, compare=False, repr=False)
    """Where all observations are; None: only this summary is known."""

    @property
    def p10(self) -> float:
        """10th percentile."""
        return self.quantile(0.1)

    @property
    def p25(self) -> float:
        """25th percentile."""
        return self.quantile(0.25)

    @property
    def p75(self) -> float:
        """75th percentile."""
        return self.quantile(0.75)

    @property
    def p90(self) -> float:
        """90th percentile."""
        return self.quantile(0.9)

    @property
    def p99(self) -> float:
        """99th percentile."""
        return self.quantile(0.99)

    def quantile(self, q: float) -> float:
        """Return a quantile: of all observations, else of the histogram.

        Of a summary alone it is linear between `p50`, `p95` and `max`, and `p50` below the median.
        """
        if self.distribution is not None:
            return self.distribution.quantile(q)
        if self.buckets:
            return _of_buckets(self.buckets, q)
        points = ((0.0, self.p50), (0.5, self.p50), (0.95, self.p95), (1.0, self.max))
        (low, below), (high, above) = next(pair for pair in pairwise(points) if q <= pair[1][0])
        return below + (above - below) * (q - low) / (high - low)

    @property
    def origin(self) -> str:
        """The provenance for people, and whether hours stand for minutes: `counter, by the hour`."""
        return f"{self.provenance.label}, by the hour" if self.by_hour else self.provenance.label


def _of_buckets(buckets: Sequence[tuple[float, float]], q: float) -> float:
    """Return a quantile, linear within the bucket; values above the last finite bound count as that bound."""
    rank, below, lower = q * sum(count for _, count in buckets), 0.0, 0.0
    for bound, count in buckets:
        if bound == inf:
            break
        if count and below + count >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / count
        below, lower = below + count, bound
    return lower


@dataclass(frozen=True, slots=True)
class Comparison:
    """Device-seconds per token of two epochs at like load, or why they cannot be compared.

    Hours are matched by hour of the week, load, share of generated tokens and share of cached prompt tokens.
    """

    ratio: tuple[float, float, float] | None = None
    """Device-seconds per token, later epoch over earlier: (low, likely, high) of a 90 % interval; above 1 is dearer."""
    matched_hours: int = 0
    """Hours of the later epoch that have like hours in the earlier one."""
    later_s_per_mtok: float | None = None
    """Device-seconds per 10^6 tokens (prompt, cached included, and generated) of the later epoch in those hours."""
    code: str | None = None
    """Why `ratio` is unknown, for programs: `few-hours`, `load-differs`, `mix-differs`, `cache-differs`, `not-measured`
    or `mostly-busy`."""
    reason: str | None = None
    """The same for people."""
    not_matched: tuple[str, ...] = ()
    """Properties that could not be matched, since the engine does not expose them in either epoch."""

    @property
    def earlier_s_per_mtok(self) -> float | None:
        """Device-seconds per 10^6 tokens of the earlier epoch at the load of the later one."""
        if self.ratio is None or self.later_s_per_mtok is None:
            return None
        return self.later_s_per_mtok / self.ratio[1]

    @property
    def dearer(self) -> bool:
        """Whether the later epoch costs more per token: the whole interval is above 1."""
        return self.ratio is not None and self.ratio[0] > 1

    @property
    def cheaper(self) -> bool:
        """Whether the later epoch costs less per token: the whole interval is below 1."""
        return self.ratio is not None and self.ratio[2] < 1


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch before the present one of a deployment: knobs, model, version and devices stayed the same in it."""

    start: int
    """Epoch seconds, UTC."""
    end: int
    engine_version: str | None = None
    driver: str | None = None
    """Version of the accelerator's driver; None where it was not recorded."""
    knobs: Mapping[str, object] = field(default_factory=dict)
    """Knobs of a deployment by name; one that nobody could see is absent."""
    changed: tuple[str, ...] = ()
    """What differs in the present epoch: names of knobs, `engine_version`, `driver`, `devices` (their number or kind).

    A knob that is known in one of the two alone is among them.
    """
    tokens: int | None = None
    """Prompt tokens, cached ones included, and generated tokens, of its hours that are still stored."""
    present: Comparison = field(default_factory=Comparison)
    """The present epoch against this one."""
    deployment_id: int = 0


EPOCHS = "epochs"
"""Name under which reading `Evidence.epochs` is remembered; it is no series."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Operating point of a deployment at one steady load: a minute of its traffic or a probe's step. Unknown is
    None."""

    ts: int
    """Epoch seconds, UTC: its start."""
    running: float
    """Mean number of running requests while it worked."""
    token_s: float | None
    """Seconds from one token of a request to its next; the prefill of prompts is included."""
    prompt_len: float
    """Tokens, cached ones included."""
    generated_len: float
    cached_share: float = 0.0
    """Prompt tokens found in the prefix cache, 0 to 1."""
    ttft_s: float | None = None
    """Time to first token of requests that ran alone; never of requests that may have waited."""
    memory_active: float | None = None
    """Share of the listed memory bandwidth used while it worked."""
    gemm_active: float | None = None
    """Share of the listed rate of matrix products used while it worked."""
    probed: bool = False
    """Whether `pertoken probe` made it, with a load of its own."""


class LazyPoints(Protocol):
    """Operating points that are found when they are first asked for."""

    def points(self) -> tuple[OperatingPoint, ...]:
        """Return the operating points, oldest first."""
        ...


class LazySeries(Protocol):
    """A series that is made when it is first read: most are never."""

    def series(self) -> Series | None:
        """Return the series; None if it was not measured."""
        ...


class LazyEpochs(Protocol):
    """Earlier epochs that are compared when they are first read: most are never."""

    def epochs(self) -> tuple[Epoch, ...]:
        """Return the earlier epochs, oldest first."""
        ...


class Evidence:
    """Measured series by attribute: `seen.running.p95`, and by hour of the week: `seen.hours.running[9]`.

    Remembers, in order, which series were read.
    """

    def __init__(
        self,
        series: Mapping[str, Series | LazySeries],
        remedies: Mapping[str, str] | None = None,
        hours: Mapping[str, HoursOfWeek] | None = None,
        epochs: Sequence[Epoch] | LazyEpochs = (),
        points: Sequence[OperatingPoint] | LazyPoints = (),
    ) -> None:
        """`hours` are of series made by hand, which have no `distribution`. `points` calibrate a forecast."""
        unknown = sorted(set(series) - set(SERIES))
        if unknown:
            raise ValueError(f"not a series: {', '.join(unknown)}; known: {', '.join(SERIES)}")
        self._series = {name: measured for name, measured in series.items() if isinstance(measured, Series)}
        self._lazy = {name: lazy for name, lazy in series.items() if not isinstance(lazy, Series)}
        self._remedies = dict(remedies or {})
        self._hours = dict(hours or {})
        self._epochs = epochs
        self._points = points
        self._measured: Evidence | None = None
        self._read: dict[str, None] = {}

    def __getattr__(self, name: str) -> Series:
        if name.startswith("_") or name not in SERIES:
            raise AttributeError(f"no series {name!r}; known: {', '.join(SERIES)}")
        self._read[name] = None
        if (measured := self.peek(name)) is None:
            raise NotMeasured(name, self._remedies.get(name, SERIES[name].remedy))
        return measured

    def peek(self, name: str) -> Series | None:
        """Return a series, None if it was not measured, without counting as reading it."""
        if (lazy := self._lazy.pop(name, None)) is not None and (made := lazy.series()) is not None:
            self._series[name] = made
        return self._series.get(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *SERIES]

    def has(self, name: str) -> bool:
        """Return whether a series was measured; asking counts as reading it."""
        try:
            getattr(self, name)
        except NotMeasured:
            return False
        return True

    @property
    def hours(self) -> "Hours":
        """The mean of each series by hour of the week."""
        return Hours(self)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Earlier epochs of the deployment, or of all deployments of the service, oldest first of each.

        The last eight weeks are looked at. Empty where nothing changed in them.
        """
        self._read[EPOCHS] = None
        return self.peek_epochs()

    def peek_epochs(self) -> tuple[Epoch, ...]:
        """Return the earlier epochs without counting as reading them."""
        if not isinstance(self._epochs, Sequence):
            self._epochs = self._epochs.epochs()
        return tuple(self._epochs)

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return the points that calibrate a forecast of the deployment, oldest first, without counting as reading."""
        if not isinstance(self._points, Sequence):
            self._points = self._points.points()
        return tuple(self._points)

    def with_points(self, more: Sequence[OperatingPoint]) -> "Evidence":
        """Return the same measurements with further operating points."""
        if not more:
            return self
        points = _Joined(self._points, tuple(more))
        return Evidence({**self._lazy, **self._series}, self._remedies, self._hours, self._epochs, points)

    @property
    def measured(self) -> "Evidence":
        """The measured evidence, where this is evidence of an assumed load; else itself."""
        return self._measured or self

    def at_load(self, series: Mapping[str, Series]) -> "Evidence":
        """Return evidence of an assumed load with other values of some series; `measured` stays."""
        assumed = Evidence({**dict(self.items()), **series}, self._remedies, epochs=self.peek_epochs())
        assumed._measured = self.measured
        return assumed

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the series read so far (`epochs` for those), in the order of first reading."""
        return tuple(self._read)

    def fresh(self) -> "Evidence":
        """Return the same measurements with nothing read yet. A series that either makes is of both."""
        fresh = copy(self)
        fresh._read = {}
        return fresh

    def items(self) -> Iterable[tuple[str, Series]]:
        """Return all measured series by name, without counting as reading."""
        for name in tuple(self._lazy):
            self.peek(name)
        return self._series.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Evidence):
            return False
        return (dict(self.items()), self.peek_epochs()) == (dict(other.items()), other.peek_epochs())

    def __hash__(self) -> int:
        return hash(tuple(sorted(name for name, _ in self.items())))


@dataclass(frozen=True, slots=True)
class _Joined:
    """Operating points of a window and of probes."""

    measured: Sequence[OperatingPoint] | LazyPoints
    probed: tuple[OperatingPoint, ...]

    def points(self) -> tuple[OperatingPoint, ...]:
        measured = self.measured if isinstance(self.measured, Sequence) else self.measured.points()
        return tuple(sorted((*measured, *self.probed), key=lambda point: point.ts))


class Hours:
    """Means of series by hour of the week, by attribute. Reading one counts as reading the series."""

    def __init__(self, seen: Evidence) -> None:
        self._seen = seen

    def __getattr__(self, name: str) -> HoursOfWeek:
        measured: Series = getattr(self._seen, name)
        if name in self._seen._hours:
            return self._seen._hours[name]
        if measured.distribution is None:
            raise NotMeasured(f"{name} by hour of the week", "it is summed over the window: read a rate instead")
        return measured.distribution.hours()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *SERIES]
