"""Threads for calls that may hang: nothing waits for them, the end of the program neither."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

log = logging.getLogger("pertoken.agent")


class Workers:
    """Daemon threads, started as they are needed, that run calls in the order in which they were submitted."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads, self._name = max_threads, name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        """Calls submitted and not done yet."""
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call` in a thread, at once if fewer than `max_threads` calls are running. Not after `close`."""
        with self._lock:
            if self._closed:
                return
            self._busy += 1
            if self._busy > self._threads < self._max_threads:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._calls.put(call)

    def close(self) -> None:
        """Start no further call; threads end after the call they are in."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                if not self._closed:
                    call()
            except Exception:
                log.exception("a call of %s failed", self._name)
            finally:
                with self._lock:
                    self._busy -= 1


Clock = Callable[[], float]
"""Monotonic seconds."""


class Backoff:
    """Due at once, then after 5 s, doubling up to 5 minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wait_s = 5.0
        self._due_s = float("-inf")

    @property
    def due(self) -> bool:
        """Whether it may be tried now."""
        return self._clock() >= self._due_s

    def failed(self) -> None:
        """It was tried and failed."""
        self._due_s = self._clock() + self._wait_s
        self._wait_s = min(self._wait_s * 2, 300.0)


Item = TypeVar("Item")
Result = TypeVar("Result")
PATIENCE_S = 1.5
"""Longer than any call of a healthy driver, and two of them still fit into the least deadline of a reading (5 s)."""
HANGS = "a driver call on it hangs: nothing is read of it until that returns"
"""Why a device is lost then."""
MAX_HUNG = 2
"""Hanging items from which on the whole driver counts as hung: no further call is made."""


@dataclass(slots=True)
class _Batch(Generic[Item, Result]):
    function: Callable[[Item], Result]
    items: Sequence[Item]
    answers: list[Result] = field(default_factory=list)
    error: BaseException | None = None
    began_s: float = field(default_factory=time.monotonic)
    """When the call of the next item was made."""
    abandoned: bool = False
    """Whether nobody waits for it any more."""

    @property
    def over(self) -> bool:
        """Whether no more answers come."""
        return self.error is not None or len(self.answers) == len(self.items)


class Patience:
    """Waits `patience_s` for each call. For one caller."""

    def __init__(self, name: str, patience_s: float = PATIENCE_S) -> None:
        self._name, self._patience_s = name, patience_s
        self._moved = threading.Condition()
        self._queue: SimpleQueue[Callable[[], bool] | None] | None = None
        """Batches for the present thread; None ends it."""
        self._thread: threading.Thread | None = None
        self._hung: dict[object, threading.Thread] = {}

    @property
    def hung(self) -> frozenset[object]:
        """The items with calls that have not returned."""
        with self._moved:
            return frozenset(self._hung)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | None]:
        """Return `function` of each item, in their order; None for one that hangs, now or still.

        Items must be hashable. Raises the errors of `function`; nothing is asked after one.
        """
        hung = self.hung
        answers: dict[Item, Result] = {}
        waiting = [item for item in items if item not in hung]
        while waiting and len(self.hung) < MAX_HUNG:
            batch = _Batch(function, waiting)
            self._submit(batch)
            done = self._wait(batch)
            answers |= zip(waiting, batch.answers[:done], strict=False)
            if batch.error:
                raise batch.error
            waiting = waiting[done + 1 :]
        return [answers.get(item) for item in items]

    def close(self) -> None:
        """Wait, without end, for calls that hang: a process must not end inside a driver call."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None
        with self._moved:
            threads = list(self._hung.values())
        for thread in threads:
            thread.join()

    def _submit(self, batch: _Batch[Item, Result]) -> None:
        if self._queue is None:
            self._queue = SimpleQueue()
            self._thread = threading.Thread(target=_run_all, args=(self._queue,), name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(partial(self._work, batch))

    def _wait(self, batch: _Batch[Item, Result]) -> int:
        """Return how many items were answered: all, those before an error, or those before the one that hangs."""
        with self._moved:
            while not batch.over:
                # Woken only when all is answered; till then, whether the call of the moment is late is looked up.
                left_s = batch.began_s + self._patience_s - time.monotonic()
                if left_s > 0:
                    self._moved.wait(left_s)
                    continue
                assert self._thread is not None
                batch.abandoned = True
                self._hung[batch.items[len(batch.answers)]] = self._thread
                self._queue = None
                break
            return len(batch.answers)

    def _work(self, batch: _Batch[Item, Result]) -> bool:
        """Make the calls of a batch; False if it was abandoned, and with it this thread."""
        for item in batch.items:
            error: BaseException | None = None
            try:
                answer = batch.function(item)
            except BaseException as raised:
                error = raised
            with self._moved:
                if batch.abandoned:
                    self._hung.pop(item, None)
                    return False
                if error:
                    batch.error = error
                else:
                    batch.answers.append(answer)
                batch.began_s = time.monotonic()
                if batch.over:
                    self._moved.notify()
            if error:
                break
        return True


def _run_all(queue: SimpleQueue[Callable[[], bool] | None]) -> None:
    while (work := queue.get()) is not None and work():
        pass
