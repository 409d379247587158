"""A scheduler by clocks that a test sets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from unittest.mock import patch

from pertoken.errors import CorruptStore
from pertoken.schedule.jobs import Job
from pertoken.schedule.scheduler import Scheduler
from tests.recorded import until


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

    def settle(self) -> None:
        """Wait until the scheduler has seen all that is due now."""
        self.scheduler._scheduler.wakeup()
        until(lambda: all(state.next_ts > self.clock.wall() for state in self.scheduler.states()), "jobs that are due")
        until(lambda: not any(self.scheduler._scheduler._executors["default"]._instances.values()), "their threads")

    def run(self) -> None:
        """Do what is due now."""
        self.settle()
        while self._calls:
            self._calls.pop(0)()


@contextmanager
def scheduled(jobs: Iterable[Job], clock: Clock) -> Iterator[Pending]:
    """Schedule jobs by these clocks."""

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(clock.wall(), tz)

    with patch("apscheduler.schedulers.base.datetime", Now):
        pending = Pending(clock)
        pending.scheduler.set(jobs)
        pending.scheduler.start()
        try:
            yield pending
        finally:
            pending.scheduler.stop()
