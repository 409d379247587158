"""Pace of readings: not while nothing has changed, and never for more than a share of one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

MAX_SHARE = 0.015
"""Share of one core for each kind of reading: the result of 0.3 s of CPU is used for 20 s."""
MAX_AGE_S = 60.0
"""Age in seconds at which a value is read again without a commit: a window ends at the time of its reading."""


@dataclass(frozen=True, slots=True)
class _Kept:
    key: Hashable
    changes: object
    value: Any
    read_s: float
    cost_s: float


class Pace:
    """Cache of the last reading of each kind. `clock` returns wall seconds, `cpu` CPU seconds of the calling thread."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._kept: dict[str, _Kept] = {}

    def get(
        self,
        kind: str,
        key: Hashable,
        changes: object,
        read: Callable[[], T],
        outdated: Callable[[T], bool] = lambda _: False,
    ) -> T:
        """Return the last value of a kind if it was read for the same key and is recent enough; else read it.

        `changes` stays equal while nothing is committed; None: commits cannot be observed. A value for which `outdated`
        returns True is read again in any case.
        """
        last = self._kept.get(kind)
        if last is not None and last.key == key and not self._due(last, changes) and not outdated(last.value):
            return last.value  # type: ignore[no-any-return]
        began_s = self._cpu()
        value = read()
        self._kept[kind] = _Kept(key, changes, value, self._clock(), self._cpu() - began_s)
        return value

    def forget(self) -> None:
        """Drop all values."""
        self._kept.clear()

    def _due(self, last: _Kept, changes: object) -> bool:
        age_s = self._clock() - last.read_s
        if changes is not None and changes == last.changes:
            return age_s >= max(MAX_AGE_S, last.cost_s / MAX_SHARE)
        return age_s >= last.cost_s / MAX_SHARE
