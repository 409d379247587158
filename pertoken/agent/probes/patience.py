"""Calls that may never return are made on a thread of their own: one that hangs is left there, the rest goes on.

A thread inside a driver cannot be ended, and a process must not be killed there, so a hung thread is only left alone:
it ends when its call returns, and its late answer is dropped.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

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
    left: bool = False
    """Nobody waits for it any more."""

    @property
    def over(self) -> bool:
        """Whether no more answers come."""
        return self.error is not None or len(self.answers) == len(self.items)


class Patience:
    """Waits `patience_s` for each call. For one caller."""

    def __init__(self, name: str, patience_s: float = PATIENCE_S) -> None:
        self._name, self._patience_s = name, patience_s
        self._moved = threading.Condition()
        self._queue: SimpleQueue[_Batch[Any, Any] | None] | None = None
        self._thread: threading.Thread | None = None
        self._hung: dict[Any, threading.Thread] = {}

    @property
    def hung(self) -> frozenset[Any]:
        """The items whose calls have not returned."""
        with self._moved:
            return frozenset(self._hung)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | None]:
        """`function` of each item, in their order; None for one that hangs, now or still.

        An item is what hangs, so it must be hashable. Raises what `function` raises; nothing is asked after that.
        """
        hung = self.hung
        answers: dict[Item, Result] = {}
        waiting = [item for item in items if item not in hung]
        while waiting and len(self.hung) < MAX_HUNG:
            batch = _Batch(function, waiting)
            self._give(batch)
            done = self._wait(batch)
            answers |= zip(waiting, batch.answers[:done], strict=False)
            if batch.error:
                raise batch.error
            waiting = waiting[done + 1 :]
        return [answers.get(item) for item in items]

    def close(self) -> None:
        """Wait, without end, for what hangs: a process must not end inside a driver call."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None
        with self._moved:
            threads = list(self._hung.values())
        for thread in threads:
            thread.join()

    def _give(self, batch: _Batch[Any, Any]) -> None:
        if self._queue is None:
            self._queue = SimpleQueue()
            self._thread = threading.Thread(target=self._work, args=(self._queue,), name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(batch)

    def _wait(self, batch: _Batch[Any, Any]) -> int:
        """Return how many items were answered: all, those before an error, or those before the one that hangs."""
        with self._moved:
            while not batch.over:
                # Woken only when all is answered; till then, whether the call of the moment is late is looked up.
                left_s = batch.began_s + self._patience_s - time.monotonic()
                if left_s > 0:
                    self._moved.wait(left_s)
                    continue
                assert self._thread is not None
                batch.left = True
                self._hung[batch.items[len(batch.answers)]] = self._thread
                self._queue = None
                break
            return len(batch.answers)

    def _work(self, queue: "SimpleQueue[_Batch[Any, Any] | None]") -> None:
        while (batch := queue.get()) is not None:
            for item in batch.items:
                error: BaseException | None = None
                answer: Any = None
                try:
                    answer = batch.function(item)
                except BaseException as raised:
                    error = raised
                with self._moved:
                    if batch.left:
                        self._hung.pop(item, None)
                        return
                    if error:
                        batch.error = error
                    else:
                        batch.answers.append(answer)
                    batch.began_s = time.monotonic()
                    if batch.over:
                        self._moved.notify()
                if error:
                    break
