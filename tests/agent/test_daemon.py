"""Times at which the agent ticks, by a clock that is set as it likes."""

from collections.abc import Callable
from queue import Empty
from types import SimpleNamespace

import pytest

from pertoken.agent import daemon
from pertoken.errors import CorruptStore
from pertoken.store.connect.location import locate


class Clock:
    """Recorded time and the wall clock, and how long was waited by it."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self.monotonic_s = 0.0
        self.waits: list[float] = []

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.monotonic_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.monotonic_s += seconds


class Signals:
    """Stands in for the queue of the daemon: waiting moves the clock."""

    def __init__(self, clock: Clock, meanwhile: Callable[[int], Callable[[], None] | None]) -> None:
        self._clock, self._meanwhile = clock, meanwhile

    def get(self, timeout: float) -> Callable[[], None]:
        self._clock.waits.append(timeout)
        if work := self._meanwhile(len(self._clock.waits)):
            return work
        self._clock.wait(timeout)
        raise Empty

    def put(self, work: Callable[[], None]) -> None:
        """Nothing more comes."""


def ticks(
    monkeypatch: pytest.MonkeyPatch,
    tick: Callable[[Clock, int], None],
    meanwhile: Callable[[int], Callable[[], None] | None] = lambda n: None,
    most: int = 6,
    interval_s: int = 2,
) -> tuple[list[float], Clock]:
    """Return wall-clock times of the first ticks, of which each does `tick(clock, n)`."""
    clock, seen = Clock(1000.3), list[float]()

    def ticked() -> None:
        seen.append(clock.now_s)
        tick(clock, len(seen))
        if len(seen) == most:
            agent._end()

    settings = SimpleNamespace(agent_interval=interval_s, store_check_every=3600)
    recorder = SimpleNamespace(tick=ticked, settings=settings, now_s=clock.time)
    monkeypatch.setattr(daemon, "time", SimpleNamespace(time=clock.time, monotonic=clock.monotonic))
    agent = daemon._Daemon(recorder, locate("/nowhere"), lambda: pytest.fail("nothing is reread"))  # type: ignore[arg-type]
    agent._asked = Signals(clock, meanwhile)  # type: ignore[assignment]
    agent._tick_on()
    return seen, clock


def nothing(clock: Clock, n: int) -> None:
    pass


def test_ticks_are_at_the_multiples_of_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ticks(monkeypatch, nothing)[0] == [1002, 1004, 1006, 1008, 1010, 1012]


def test_a_tick_that_takes_long_is_followed_by_the_next_multiple_and_by_no_burst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(clock: Clock, n: int) -> None:
        clock.wait(5.5 if n == 2 else 0.1)

    assert ticks(monkeypatch, slow)[0] == [1002, 1004, 1010, 1012, 1014, 1016]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_stops_no_ticks(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    def step(clock: Clock, n: int) -> None:
        if n == 2:
            clock.now_s += step_s

    seen, clock = ticks(monkeypatch, step)
    assert seen[2:] == [1004 + step_s + 2 * n for n in range(1, 5)]
    assert max(clock.waits) <= 2


def test_a_clock_set_back_while_the_agent_waits_is_waited_for_an_interval_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks: list[Clock] = []

    def first(clock: Clock, n: int) -> None:
        clocks.append(clock)

    def step() -> None:
        clocks[0].now_s -= 3600

    seen, clock = ticks(monkeypatch, first, lambda n: step if n == 2 else None)
    assert seen[:3] == [1002, 1002 - 3600 + 2, 1002 - 3600 + 4]
    assert max(clock.waits) <= 2


def test_a_request_between_two_ticks_is_done_at_once_and_moves_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []

    def ask(n: int) -> Callable[[], None] | None:
        return (lambda: done.append(n)) if n in (2, 3) else None

    assert ticks(monkeypatch, nothing, ask, most=3)[0] == [1002, 1004, 1006]
    assert done == [2, 3]


def test_damage_that_a_check_finds_ends_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> None:
        raise CorruptStore("a page is damaged")

    with pytest.raises(CorruptStore, match="a page is damaged"):
        ticks(monkeypatch, nothing, lambda n: damaged if n == 3 else None)
