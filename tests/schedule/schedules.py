"""A scheduler by clocks that a test sets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pertoken.errors import CorruptStore
from pertoken.schedule.jobs import Job
from pertoken.schedule.scheduler import Scheduler


class Clock:
    """Seconds since the start of the machine, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.wall_ahead_s = 1_000_000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return self.now_s + self.wall_ahead_s


class Pending:
    """Calls that the scheduler handed over to the thread of the test."""

    def __init__(self, clock: Clock) -> None:
        self._calls: list[Callable[[], None]] = []
        self.clock = clock
        self.bounds: list[float] = []
        self.scheduler = Scheduler(
            self._calls.append, monotonic=clock.monotonic, wall=clock.wall, fatal=(CorruptStore,), draw=self.draw
        )

    def draw(self, low: float, high: float) -> float:
        """Return the upper bound, and keep it."""
        self.bounds.append(high)
        return high

    def run(self) -> None:
        """Do what is due now."""
        self.scheduler.begin_due()
        while self._calls:
            self._calls.pop(0)()


@contextmanager
def scheduled(jobs: Iterable[Job], clock: Clock) -> Iterator[Pending]:
    """Schedule jobs by these clocks; the test begins what is due."""
    pending = Pending(clock)
    pending.scheduler.set(jobs)
    pending.scheduler.begin_due()
    try:
        yield pending
    finally:
        pending.scheduler.stop()
