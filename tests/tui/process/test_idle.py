"""Work between keys: in order, one step at a time, and later while keys are pressed."""

from collections.abc import Callable

from pertoken.tui.process.idle import PAUSE_S, IdleWork


class Clock:
    """Time that passes only from call to call of what was scheduled."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.scheduled: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self.scheduled.append((self.now_s + seconds, call))

    def next(self) -> None:
        self.now_s, call = self.scheduled.pop(0)
        call()


def test_steps_are_done_in_their_order_with_a_pause_before_each() -> None:
    clock, done = Clock(), list[tuple[str, float]]()
    work = IdleWork(clock.after, lambda: clock.now_s)
    work.add(lambda: done.append(("a", clock.now_s)), lambda: done.append(("b", clock.now_s)))
    work.add(lambda: done.append(("c", clock.now_s)))
    assert len(clock.scheduled) == 1
    while clock.scheduled:
        clock.next()
    assert done == [("a", 100 + PAUSE_S), ("b", 100 + 2 * PAUSE_S), ("c", 100 + 3 * PAUSE_S)]


def test_a_key_puts_the_next_step_off() -> None:
    clock, done = Clock(), list[float]()
    work = IdleWork(clock.after, lambda: clock.now_s)
    work.add(lambda: done.append(clock.now_s))
    clock.now_s += PAUSE_S / 2
    work.touched()
    clock.next()
    assert done == []
    clock.next()
    assert done == [100 + 1.5 * PAUSE_S]
