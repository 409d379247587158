"""Clients that keep a server busy while something is done to it or to its agent."""

import threading
from collections.abc import Callable
from http.client import HTTPException
from types import TracebackType


class Load:
    """A number of clients, each asking again and again until the block ends; a server that is away is asked again.

    `ask(n)` makes the n-th request. `pause_s` is how long a client waits after an answer: without one, the clients and
    the server take both cores for themselves.
    """

    def __init__(self, ask: Callable[[int], object], clients: int = 3, pause_s: float = 0.0) -> None:
        self._ask, self._pause_s = ask, pause_s
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        self._n = 0
        self.served = 0
        """Requests answered whole."""

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                self._n += 1
                n = self._n
            try:
                self._ask(n)
            except (OSError, HTTPException, ValueError):
                self._ended.wait(0.05)  # killed under the request, or not up yet
            else:
                with self._lock:
                    self.served += 1
                self._ended.wait(self._pause_s)
