"""Questions to servers that may never answer, asked in threads: whoever asks takes the answers that are there."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pertoken.agent.workers import Workers

_T = TypeVar("_T")


class Questions(Generic[_T]):
    """At most one question under way to each address, and a bounded number altogether."""

    def __init__(self, max_threads: int) -> None:
        self._workers = Workers(max_threads, "ask")
        self._changed = threading.Condition()
        self._under_way: set[str] = set()
        self._answers: dict[str, _T] = {}

    def answer(self, address: str, ask: Callable[[], _T]) -> _T | None:
        """Return the answer of `address` if it is there; else begin to ask and return None."""
        with self._changed:
            if address in self._answers:
                return self._answers[address]
            if address not in self._under_way:
                self._under_way.add(address)
                self._workers.submit(lambda: self._run(address, ask))
        return None

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is under way, or for `seconds`; returns whether anything was asked since `forget`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            asked = bool(self._under_way or self._answers)
            self._changed.wait_for(lambda: not self._under_way, max(0.0, deadline - time.monotonic()))
        return asked

    def forget(self) -> None:
        """Drop the answers: the next question is asked again. Those under way stay so."""
        with self._changed:
            self._answers.clear()

    def close(self) -> None:
        """Ask nothing more; what is under way is not waited for."""
        self._workers.close()
        with self._changed:
            self._under_way.clear()
            self._changed.notify_all()

    def _run(self, address: str, ask: Callable[[], _T]) -> None:
        try:
            answer = ask()
            with self._changed:
                self._answers[address] = answer
        finally:
            with self._changed:
                self._under_way.discard(address)
                self._changed.notify_all()
