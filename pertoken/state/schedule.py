"""Replicas of a service by hour of week."""

from collections.abc import Iterable
from dataclasses import dataclass

from pertoken.state.demand import HOURS_OF_WEEK
from pertoken.state.errors import InvalidEdit


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hours of the week (0 is Monday 00:00 UTC) in which a service has another number of replicas.

    Off releases the hosts of its replicas; asleep keeps them and frees the device memory.
    """

    off: frozenset[int] = frozenset()
    asleep: frozenset[int] = frozenset()
    replicas: tuple[tuple[int, int], ...] = ()
    """(hour of week, replicas) where a fixed number is meant."""

    def __post_init__(self) -> None:
        for hour in (*self.off, *self.asleep, *(hour for hour, _ in self.replicas)):
            if type(hour) is not int or not 0 <= hour < HOURS_OF_WEEK:
                raise InvalidEdit(f"hour {hour!r} is not an hour of the week: use 0 (Monday 00:00 UTC) to 167")
        if self.off & self.asleep:
            raise InvalidEdit("an hour is either off or asleep")
        if any(type(count) is not int or count < 0 for _, count in self.replicas):
            raise InvalidEdit("a schedule has a whole number of replicas, 0 or more, in each hour")
        fixed = [hour for hour, _ in self.replicas]
        if len(set(fixed)) != len(fixed) or set(fixed) & (self.off | self.asleep):
            raise InvalidEdit("a schedule states each hour once")


def off(hours: Iterable[int]) -> Schedule:
    """Return the schedule of a service that is shut down in these hours of the week."""
    return Schedule(off=frozenset(hours))


def asleep(hours: Iterable[int]) -> Schedule:
    """Return the schedule of a service that sleeps in these hours of the week."""
    return Schedule(asleep=frozenset(hours))
