"""Disk-full handling: a ballast to drop, and the oldest rows to delete, so that recording goes on as a ring.

On a full disk SQLite can neither delete nor write its log back, so that it never recovers alone. The ballast is a
file that can be dropped then: there is room to delete the oldest hour, whose pages the next ticks fill again.
"""

import os
from contextlib import suppress
from pathlib import Path

from pertoken.errors import FullStore
from pertoken.store.integrity.checksums import CHECKSUMMED, DAY, ROLLED, SAMPLES, ChecksummedTable
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.store.write.rollup import ROLLUPS
from pertoken.store.write.writer import Writer

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
        oldest = min((ts for table in tables if (ts := writer.oldest(table)) is not None), default=None)
        if oldest is None or oldest + tables[0].span_s > kept:
            continue
        before = oldest + tables[0].span_s
        if tables is SAMPLES:
            writer.delete_batches(before)
        for table in tables:
            writer.delete_oldest(table, before)
        writer.checkpoint()
        ballast.hold()
        return what
    refused = "nothing older is left to give up: ticks are not stored until there is room"
    raise FullStore(f"{writer.location}: the disk is full, and {refused}")


def _resolution(seconds: int) -> tuple[ChecksummedTable, ...]:
    return tuple(CHECKSUMMED[rollup.tables[seconds].name] for rollup in ROLLUPS)
