"""Deleting old telemetry, resolution by resolution, in small steps that neither a tick nor a full disk minds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select

from pertoken.errors import FullStore
from pertoken.store.integrity.checksums import CHECKSUMMED, DAY, ROLLED, SAMPLES, ChecksummedTable
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.rollup import ROLLUPS
from pertoken.store.write.writer import Writer


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds after which ticks, 1-min and 1-h roll-ups, and events are deleted."""

    raw_s: int
    minutes_s: int
    hours_s: int
    events_s: int = 730 * DAY


MAX_STEPS = 6
"""Steps of one table in an agent's hourly pass. What a host accumulates in an hour takes one; a backlog is deleted six
times as fast as it grew, and a wrong clock cannot delete everything at once."""


def purging(writer: Writer, ages: Ages, now_ts: int, max_steps: int | None = None) -> Iterator[int]:
    """Delete what is older than `ages` at `now_ts`, one step at a time, oldest first; yield the rows each step deleted.

    A step is an hour of one table's ticks or minutes, or a day of its hours; there are up to `max_steps` of each table,
    and then one of events.
    Every row deleted is in its roll-up: those are brought up to date first.
    """
    writer.roll_up()
    for tables, before_ts in _limits(ages, now_ts):
        if max_steps is not None:
            before_ts = min(before_ts, _after(writer, tables, max_steps))
        yield from _deleting(writer, tables, before_ts)
    while deleted := writer.delete_events(now_ts - ages.events_s):
        yield deleted
        if max_steps is not None:
            break


def aged_rows(connection: Connection, ages: Ages, now_ts: int) -> dict[str, int]:
    """Return how many rows of each table are older than `ages` at `now_ts`; tables without such rows are left out.

    Counted by the checksums' counts, without reading the rows.
    """
    counts: dict[str, int] = {}
    for tables, before_ts in _limits(ages, now_ts):
        for table in tables:
            old = (t.seal.c.name == table.table.name, t.seal.c.ts + table.interval_s <= before_ts)
            counts[table.table.name] = (
                connection.execute(select(func.sum(t.seal.c.row_count)).where(*old)).scalar() or 0
            )
    old_events = select(func.count()).select_from(t.event).where(t.event.c.last_ts < now_ts - ages.events_s)
    counts[t.event.name] = connection.execute(old_events).scalar() or 0
    return {name: count for name, count in counts.items() if count}


def _limits(ages: Ages, now_ts: int) -> tuple[tuple[Sequence[ChecksummedTable], int], ...]:
    """Return the tables of each resolution and the time before which their rows go."""
    return (
        # A bucket is recomputed from all rows below it, so they go only by whole hours.
        (SAMPLES, (now_ts - ages.raw_s) // HOUR * HOUR),
        (_resolution(MINUTE), now_ts - ages.minutes_s),
        (_resolution(HOUR), now_ts - ages.hours_s),
    )


def _deleting(writer: Writer, tables: Sequence[ChecksummedTable], before_ts: int) -> Iterator[int]:
    """Delete the rows of these tables before a time, interval by interval; yield how many each step deleted.

    An interval goes from all tables before the next one begins, its batches first: a check of what is stored then finds
    at most one interval half deleted.
    """
    while (oldest := _oldest(writer, tables)) is not None and oldest + tables[0].interval_s <= before_ts:
        until = oldest + tables[0].interval_s
        if tables is SAMPLES:
            writer.delete_batches(until)
        for checksummed in tables:
            while (deleted := writer.delete_oldest(checksummed, until)) is not None:
                yield deleted
    if tables is SAMPLES:
        writer.delete_batches(before_ts)


def _oldest(writer: Writer, tables: Sequence[ChecksummedTable]) -> int | None:
    return min((ts for table in tables if (ts := writer.oldest(table)) is not None), default=None)


def _after(writer: Writer, tables: Sequence[ChecksummedTable], steps: int) -> int:
    """Return the end of that many steps from the oldest row of any of these tables."""
    return (_oldest(writer, tables) or 0) + steps * tables[0].interval_s


def purged_from(writer: Writer, now_ts: int) -> int:
    """Return the time from which ages count back: the newest tick stored if it is earlier than `now_ts`.

    A clock that is ahead deletes nothing more.
    """
    return min(now_ts, writer.last.ts or now_ts)


def purge(writer: Writer, ages: Ages, now_ts: int) -> tuple[int, int]:
    """Delete all that is older than `ages`; returns the rows deleted and the time their age was counted from."""
    from_ts = purged_from(writer, now_ts)
    return sum(purging(writer, ages, from_ts)), from_ts


def _resolution(seconds: int) -> list[ChecksummedTable]:
    return [CHECKSUMMED[rollup.tables[seconds].name] for rollup in ROLLUPS]


BALLAST_BYTES = 8 * 2**20
"""More than the log of deleting one hour of a large host and of writing it back."""
_LOG_BYTES = 6 * 2**20
"""What the log takes between two times it is written back, and a little more: left free beside the ballast."""
_MIN_BYTES = 2**20
"""Less than this is no help."""


class Ballast:
    """A file that holds room on the disk of a folder, to be dropped when there is none left."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "telemetry.ballast"

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._file.stat().st_size if self._file.exists() else 0

    def hold(self) -> int:
        """Hold room, as much of it as leaves enough for the log; returns the bytes held now."""
        held = self.held
        if held >= BALLAST_BYTES:
            return held
        free = os.statvfs(self._file.parent)
        size = min(BALLAST_BYTES, held + free.f_bavail * free.f_frsize - _LOG_BYTES)
        if size < held + _MIN_BYTES:
            return held
        try:
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.posix_fallocate(fd, 0, size)
            finally:
                os.close(fd)
        except OSError:
            self.drop()
        return self.held

    def drop(self) -> None:
        """Give the room back; harmless when none is held."""
        self._file.unlink(missing_ok=True)


def free_space(writer: Writer, ballast: Ballast) -> str:
    """Give up the oldest rows there are: an hour of ticks, if there is none one of minutes, then a day of hours.

    Ahead of them go rows that a wrong clock filed more than a day after the last tick: no window ever shows them. What
    was not rolled up is not given up. Returns what went; raises FullStore if nothing could.
    """
    ballast.drop()
    with suppress(FullStore):  # against the cap of the data file no ballast helps; older rows may still go
        writer.checkpoint()  # what a quota counts may be the log
        writer.roll_up()
    future = writer.last.ts + DAY
    gone = [samples for samples in (*SAMPLES, *ROLLED) if writer.delete_newest(samples, future) is not None]
    if gone:
        writer.checkpoint()
        ballast.hold()
        return "rows filed in the future by a wrong clock"
    kept = min(writer.last.ts, writer.oldest_mark() or writer.last.ts) // HOUR * HOUR
    for tables, what in (
        (SAMPLES, "the oldest ticks"),
        (_resolution(MINUTE), "the oldest 1-min roll-ups"),
        (_resolution(HOUR), "the oldest 1-h roll-ups"),
    ):
        oldest = _oldest(writer, tables)
        if oldest is None or oldest + tables[0].interval_s > kept:
            continue
        before_ts = oldest + tables[0].interval_s
        if tables is SAMPLES:
            writer.delete_batches(before_ts)
        for table in tables:
            writer.delete_oldest(table, before_ts)
        writer.checkpoint()
        ballast.hold()
        return what
    refused = "nothing older is left to give up: ticks are not stored until there is room"
    raise FullStore(f"{writer.location}: the disk is full, and {refused}")
