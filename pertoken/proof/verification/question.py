"""Input of a verification: the hours of a deployment and its siblings, the change, and what was promised of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pertoken.units import HOUR_MS
from pertoken.window.columns import Ints
from pertoken.window.epochs.like_for_like import HourlyOutcomes

HOUR_S = HOUR_MS // 1000
FIRST_MONDAY = 4 * 86_400
"""1970-01-05 00:00 UTC."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """The week that load repeats in, as buckets. All counts of hours elsewhere are counts of its buckets."""

    bucket_s: int = HOUR_S
    buckets: int = 168
    """Buckets of a week; at least 28, so that every part of a week used below is at least a bucket."""

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
        """Return how many buckets a number of sevenths of a week are, at least one."""
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
        """Whether hours before and after it cost differently for a reason that no hourly value shows."""
        return self not in (EventKind.PRICE, EventKind.MIX, EventKind.LOAD)


@dataclass(frozen=True, slots=True)
class Event:
    """Something else that happened to the deployment within the windows."""

    ts: int
    kind: EventKind
    text: str
    """What changed, for people."""


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


@dataclass(frozen=True, slots=True)
class Question:
    """Did the change at `changed_at` lower the device-seconds per token?"""

    deployment: HourlyOutcomes
    """Its whole hours before and after the change, in order of time."""
    changed_at: int
    """Epoch seconds."""
    until: int
    """End of the window after the change."""
    after_from: int | None = None
    """Start of that window where it is later than the change and its washout: a re-check looks at the last weeks."""
    siblings: Sequence[HourlyOutcomes] = ()
    """Hours over the same time of deployments that are alike and did not change."""
    promise: Promise | None = None
    """None: nobody recommended the change."""
    events: Sequence[Event] = ()
    """What else happened, without the change itself."""
    acts_through: frozenset[Covariate] = frozenset()
    """What the change is meant to alter: prefix caching raises the cached share. Hours are not made alike in it."""
    cycle: Cycle = WEEK_OF_HOURS
