"""Where screens get what they show, and what was last read of it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from pertoken.advisor.recommendation import Recommendation
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.report.lines import FleetReport
from pertoken.errors import PertokenError

T = TypeVar("T")


class Source(Protocol):
    """A database as screens see it. Every call may block, and may raise PertokenError."""

    def fleet(self, window_s: int) -> FleetReport:
        """What the fleet did and cost over the last `window_s` seconds."""
        ...

    def advice(self) -> tuple[Recommendation, ...]:
        """All that rules said in their last run."""
        ...

    def hours(self) -> tuple[ModelHours, ...]:
        """What a million tokens cost, by model and hour of the last day."""
        ...

    def describe(self) -> str:
        """Which database it is, with no password in it."""
        ...


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A value with the time it was read (epoch seconds), and why the newest reading failed, if it did."""

    value: T | None = None
    ts: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was last read."""

    place: Read[str] = field(default_factory=Read)
    fleet: Read[FleetReport] = field(default_factory=Read)
    advice: Read[tuple[Recommendation, ...]] = field(default_factory=Read)
    hours: Read[tuple[ModelHours, ...]] = field(default_factory=Read)


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows: the newest reading, the window asked for, whether figures are frozen, and a notice."""

    reading: Reading
    window_s: int
    paused: bool
    now_ts: float
    notice: str | None = None
    """Sentence about what feeds the database, such as an agent that was killed."""


def read(source: Source, window_s: int, now: Callable[[], float], last: Reading, *, hours: bool = False) -> Reading:
    """Read everything once, hours only where they are looked at. What cannot be read keeps its last value, with the
    error."""
    return Reading(
        place=_attempt(source.describe, now, last.place),
        fleet=_attempt(lambda: source.fleet(window_s), now, last.fleet),
        advice=_attempt(source.advice, now, last.advice),
        hours=_attempt(source.hours, now, last.hours) if hours else last.hours,
    )


def _attempt(call: Callable[[], T], now: Callable[[], float], last: Read[T]) -> Read[T]:
    try:
        return Read(call(), now())
    except PertokenError as error:
        return replace(last, error=str(error))
    except Exception as error:  # a screen outlives what reads for it: shown until a reading succeeds
        return replace(last, error=f"unexpected {type(error).__name__}: {error}")
