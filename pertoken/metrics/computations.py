"""Ways in which a series is computed from the columns of roll-ups: data that `window.series.compute` reads."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """Increase of a counter over time, added up over the members."""

    counter: str
    per_ms: float = 1000


@dataclass(frozen=True, slots=True)
class Ratio:
    """Sum of one counter over the sum of another."""

    above: str
    below: str
    scale: float = 1


@dataclass(frozen=True, slots=True)
class Gauge:
    """Mean of a gauge in each bucket, added up over the members or averaged over them."""

    stored: tuple[str, ...]
    """Names of the gauges in roll-ups, as `NAME_sum` over `NAME_n`; several are added."""
    per_unit: float = 1
    """Stored value of one unit."""
    summed: bool = False
    """Whether the values of several members add up; else their mean is taken."""
    while_busy: bool = False
    """Whether it is taken over busy time: divided by the busy share of the buckets with work."""
    highest: float = math.inf
    """Highest possible value."""


@dataclass(frozen=True, slots=True)
class SampleShare:
    """Share of a device's samples that have a property, averaged over the devices."""

    counted: str


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Index of dispersion of a count per minute, hour by hour."""

    counter: str


@dataclass(frozen=True, slots=True)
class Quotient:
    """Figure derived from further counters of an engine: the sum of some, over another or over its busy time."""

    above: tuple[str, ...]
    below: tuple[str, ...] | None = None
    """None: the seconds in which the engine was busy."""
    plus: float = 0
    """Added to the quotient."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """Share of observed time, from a further counter of an engine in milliseconds."""

    counter: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bucket counts of a metric that engines expose as a histogram."""

    metric: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Figure of several parts of a window, such as the energy of devices and the time that an epoch held them."""

    formula: str
    """In words."""


Counted = Quotient | TimeShare
"""Computations that read further counters of an engine."""
Computation = Rate | Ratio | Gauge | SampleShare | Dispersion | Counted | Histogram | Derived


def columns_of(computation: Computation) -> tuple[str, ...]:
    """Return the columns of roll-ups that a computation reads; none of one that is not computed from rows by bucket."""
    match computation:
        case Rate(counter) | Dispersion(counter):
            return counter, "duration_ms"
        case Ratio(above, below):
            return above, below
        case Gauge():
            gauges = (f"{name}_{part}" for name in computation.stored for part in ("sum", "n"))
            return *gauges, "duration_ms", *(("busy_ms", "observed_ms") if computation.while_busy else ())
        case SampleShare(counted):
            return counted, "samples", "duration_ms"
        case Quotient() | TimeShare():
            return "busy_ms", "observed_ms"
        case Histogram() | Derived():
            return ()


def counters_of(counted: Counted) -> tuple[str, ...]:
    """Return the further counters of an engine that a computation reads."""
    return (counted.counter,) if isinstance(counted, TimeShare) else (*counted.above, *(counted.below or ()))
