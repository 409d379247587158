"""Time range that a database covers, with its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.store.connect.open import Store


_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, or the start of an epoch."""

    ts: int
    message: str

    @property
    def shown_at(self) -> int:
        """First whole minute that shows it on a screen."""
        return (self.ts // _MINUTE + 1) * _MINUTE


@dataclass(frozen=True, slots=True)
class Timeline:
    """The recorded interval, epoch seconds, and its happenings, oldest first."""

    first_ts: int | None
    """None: nothing is recorded."""
    last_ts: int
    happenings: tuple[Happening, ...] = ()


def read_timeline(store: Store, now_ts: int) -> Timeline:
    """Read the timeline up to `now_ts`, with its newest happenings. Raises StoreError."""
    from pertoken.store.query import read, rollups

    with store.read() as connection:
        first, rows = read.first_ts(connection), rollups.happenings(connection, now_ts)
    return Timeline(first, now_ts, tuple(Happening(*row) for row in sorted(rows)))
