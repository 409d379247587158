"""Input of a verification: the hours of a deployment and its siblings, the change, and the promised saving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pertoken.units import HOUR_MS
from pertoken.window.columns import Ints
from pertoken.window.epochs import OutputCounts
from pertoken.window.like_for_like import HourlyOutcomes

HOUR_S = HOUR_MS // 1000
FIRST_MONDAY = 4 * 86_400
"""1970-01-05 00:00 UTC."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """The week in which load repeats, as buckets. Counts of hours in this package are counts of these buckets."""

    bucket_s: int = HOUR_S
    buckets: int = 168
    """Buckets of a week; at least 28, so that the shortest interval in use, a quarter of a day, is one bucket."""

    @property
    def week_s(self) -> int:
        """Seconds of a week."""
        return self.bucket_s * self.buckets

    @property
    def day_s(self) -> int:
        """Seconds of a seventh of a week."""
        return self.week_s // 7

    def phase(self, ts: Ints) -> Ints:
        """Return the bucket of the week of each instant; 0 begins on Monday 00:00 UTC."""
        return (ts - FIRST_MONDAY) // self.bucket_s % self.buckets

    def buckets_of(self, days: float) -> int:
        """Return the number of buckets in `days` sevenths of a week, at least one."""
        return max(1, round(days * self.buckets / 7))


WEEK_OF_HOURS = Cycle()


class EventKind(StrEnum):
    """Kinds of events beside the change that can happen to a deployment."""

    DRIVER = "driver"
    ENGINE = "engine"
    MODEL = "model"
    KNOBS = "knobs"
    DEVICES = "devices"
    PRICE = "price"
    MIX = "mix"
    """Prompt and output tokens, found by the verification."""
    LOAD = "load"
    """Tokens per second, found by the verification."""

    @property
    def splits(self) -> bool:
        """Whether the cost of hours may change at it for a reason that no hourly value shows."""
        return self not in (EventKind.PRICE, EventKind.MIX, EventKind.LOAD)


@dataclass(frozen=True, slots=True)
class OtherChange:
    """Another change of the deployment within the windows."""

    ts: int
    kind: EventKind
    text: str
    """Description of the change for people."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Saving that a recommendation promised: fractions of the device-seconds per token, 0.1 for a tenth less."""

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError(f"a promise rises from low to high: {self.low}, {self.likely}, {self.high}")


class Covariate(StrEnum):
    """Covariates in which the hours of both windows are matched."""

    LOAD = "load"
    """Tokens per second."""
    MIX = "mix"
    """Generated tokens over all tokens."""
    CACHE = "cache"
    """Cached over all prompt tokens."""
    LENGTH = "length"
    """Tokens per request. With the mix it gives the mean prompt and output length."""
    PROMPT_SPREAD = "prompt_spread"
    """Standard deviation of the logarithm of the prompt length."""
    GENERATED_SPREAD = "generated_spread"
    """The same of the output length."""
    UPTIME = "uptime"
    """Time since the engine started."""


class Signal(StrEnum):
    """Signals of the output guard, from metrics of engines."""

    LENGTH = "length"
    """Generated tokens per request; per prompt token where the engine counts no requests."""
    SPREAD = "spread"
    """Standard deviation of the logarithm of generated tokens per request."""
    CUT = "cut"
    """Requests that ended at their length limit, of all that ended."""
    EMPTY = "empty"
    """Requests with at most one generated token."""
    REPEATED = "repeated"
    """Requests that the engine ended because their output repeated itself."""
    ABORTED = "aborted"
    FAILED = "failed"
    """Requests that were refused or ended by an error."""
    ACCEPTED = "accepted"
    """Drafted tokens that were accepted."""


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Counts of outputs that the guard compares."""

    counts: OutputCounts
    meant: frozenset[Signal] = frozenset()
    """Signals that the change is meant to alter, which are not compared."""
    checked: bool = False
    """Whether a quality check passed with this change."""


@dataclass(frozen=True, slots=True)
class Question:
    """Did the change at `changed_at` lower the device-seconds per token?"""

    deployment: HourlyOutcomes
    """Whole hours of the deployment before and after the change, in order of time."""
    changed_at: int
    """Epoch seconds."""
    until: int
    """End of the window after the change."""
    after_from: int | None = None
    """Start of the window after the change, if it is later than the washout: a re-check uses the last weeks."""
    siblings: tuple[HourlyOutcomes, ...] = ()
    """Hours of similar deployments over the same time that did not change."""
    promise: Promise | None = None
    """None for a change without a recommendation."""
    events: tuple[OtherChange, ...] = ()
    """Other changes of the deployment, without this one."""
    acts_through: frozenset[Covariate] = frozenset()
    """Covariates that the change is meant to alter; hours are not matched in them. Prefix caching alters the cached
    share."""
    cycle: Cycle = WEEK_OF_HOURS
    outputs: Outputs | None = None
    """Counts of its outputs over the same time; None where none are known."""


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

# The level was chosen on unchanged machines: their levels jump by about a percent for no recorded reason.
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
