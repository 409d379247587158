"""A scheduler by a clock that a test sets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pertoken.errors import CorruptStore
from pertoken.schedule.jobs import Job
from pertoken.schedule.scheduler import Scheduler
from tests.recorded import until


class Pending:
    """Calls that the scheduler handed over to the thread of the test."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._calls: list[Callable[[], None]] = []
        self._monotonic = monotonic
        self.bounds: list[float] = []
        self.scheduler = Scheduler(
            self._calls.append, monotonic=monotonic, wall=self.wall, fatal=(CorruptStore,), draw=self.draw
        )

    def draw(self, low: float, high: float) -> float:
        """Return the upper bound, and keep it."""
        self.bounds.append(high)
        return high

    def wall(self) -> float:
        """Return Unix seconds, 1,000,000 ahead of the monotonic clock."""
        return 1_000_000 + self._monotonic()

    def settle(self) -> None:
        """Wait until the scheduler has seen all that is due now."""
        self.scheduler._scheduler.wakeup()
        until(lambda: all(state.next_ts > self.wall() for state in self.scheduler.states()), "jobs that are due")

    def run(self) -> None:
        """Do what is due now."""
        self.settle()
        while self._calls:
            self._calls.pop(0)()


@contextmanager
def scheduled(jobs: Iterable[Job], monotonic: Callable[[], float]) -> Iterator[Pending]:
    """Schedule jobs by this clock."""
    pending = Pending(monotonic)
    pending.scheduler.set(jobs)
    pending.scheduler.start()
    try:
        yield pending
    finally:
        pending.scheduler.stop()
