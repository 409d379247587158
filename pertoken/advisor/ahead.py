"""Parts of windows that forks read while this process reads the others: a fleet's windows take seconds of CPU time."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from sqlalchemy.pool import NullPool

from pertoken.advisor.forked import Forked, can_fork
from pertoken.advisor.windows import first_parts
from pertoken.advisor.worker.source import Source
from pertoken.store.connect.open import Store
from pertoken.window.parts import HISTOGRAMS_PART
from pertoken.window.progress import TICK_S, Progress
from pertoken.window.reading import Waiting, Window, newest_epoch

RULE_WINDOWS_S = {"stuck-engine": 3600, "scale-to-zero": 28 * 86_400, "commit-capacity": 28 * 86_400}
"""Windows of this program's rules that have one of their own, by plugin: known before a rule is loaded, in seconds."""
MIN_EPOCHS = 100
"""Minimum epochs of a database for forks to pay."""
STEPS = 1000
"""Steps of progress that a fork reports."""
Reading = tuple[int, Sequence[str]]
"""Length of a window in seconds, and the parts to read."""


def windows_of(sources: Iterable[Source]) -> frozenset[int]:
    """Return the windows that rules of this program among these have of their own, in seconds."""
    return frozenset(RULE_WINDOWS_S[source.name] for source in sources if source.own and source.name in RULE_WINDOWS_S)


@contextmanager
def reading_ahead(
    store: Store, run_s: int, rules_s: Iterable[int], now_ts: int, *, dated: bool
) -> Iterator[Mapping[int, Waiting]]:
    """Start to read the slowest part of the run's window, and the first parts of the windows that rules have.

    Yield what is read by the length of its window, in seconds; nothing where forks do not pay, or are not safe. The
    forks end with the context.
    """
    if not _pays(store):
        yield {}
        return
    run = [(run_s, (HISTOGRAMS_PART,))]
    own = [(window_s, first_parts(window_s, run_s)) for window_s in sorted(rules_s)]
    with ExitStack() as stack:
        # With two processors the second fork begins when the first or this process has read: it is needed last.
        waits = len(os.sched_getaffinity(0)) < 3
        last = [_Fork(stack, store, own, now_ts, dated, waits=waits)] if own else []
        first = _Fork(stack, store, run, now_ts, dated, then=[fork.go for fork in last])
        yield {window_s: waiting for fork in (first, *last) for window_s, waiting in fork.parts.items()}


def _pays(store: Store) -> bool:
    """Return whether forks pay, and are safe: each opens the database, which no connection of this process may be.

    See https://www.sqlite.org/howtocorrupt.html, section 2.6.
    """
    on_disk = store.location.url is None and isinstance(store.telemetry.pool, NullPool)
    return on_disk and can_fork() and newest_epoch(store)[1] >= MIN_EPOCHS


class _Fork:
    """Reading of parts of some windows in a fork, which ends with a stack."""

    def __init__(
        self,
        stack: ExitStack,
        store: Store,
        readings: Sequence[Reading],
        now_ts: int,
        dated: bool,
        *,
        waits: bool = False,
        then: Sequence[Callable[[], None]] = (),
    ) -> None:
        """Start the fork, which `waits` for `go`. `then` are called when it ends or is waited for."""
        self._store, self._readings, self._now_ts, self._dated = store, readings, now_ts, dated
        self._then = then
        self._result: dict[int, dict[str, Any]] | None = None
        self._parent = os.getpid()
        self._waiter, self._goer = os.pipe()
        stack.callback(os.close, self._waiter)
        stack.callback(os.close, self._goer)
        if not waits:
            self.go()
        self._forked = stack.enter_context(Forked(self._read))
        self.parts: Mapping[int, Waiting] = {
            window_s: {part: partial(self._wait, window_s, part) for part in parts} for window_s, parts in readings
        }
        """What it reads, by the length of the window."""

    def go(self) -> None:
        """Let the fork begin."""
        os.write(self._goer, b"\1")

    def _let_follow(self) -> None:
        for follow in self._then:
            follow()

    def _read(self, report: Callable[[int], None]) -> dict[int, dict[str, Any]]:
        if os.getpid() != self._parent:  # else the fork failed, and this process waits for what it reads
            os.read(self._waiter, 1)
        read: dict[int, dict[str, Any]] = {}
        for window_s, parts in self._readings:

            def show(_: str, share: float) -> None:
                report(int(STEPS * (len(read) + share) / len(self._readings)))

            with self._store.read() as connection:
                window = Window(connection, self._now_ts - window_s, self._now_ts, dated=self._dated)
                read[window_s] = window.parts(parts, show)
        self._let_follow()
        return read

    def _wait(self, window_s: int, part: str, progress: Progress) -> Any:
        if self._result is None:
            self.go()
            phase = "reading histograms" if part == HISTOGRAMS_PART else "reading hours"
            self._let_follow()
            self._result = self._forked.result(lambda: progress(phase, self._forked.done / STEPS), TICK_S)
        return self._result[window_s][part]
