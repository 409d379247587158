"""The high-water mark: the last batch that was acknowledged, recorded outside the database.

SQLite ends a write-ahead log at the first frame whose checksum is wrong: what came after a flipped bit is gone, and an
integrity check finds nothing wrong. The mark records how far the batches had come. It is overwritten in place after
every commit without waiting for the disk; `flush` waits, now and then. After a power cut it may be too low and miss a
loss; it is never ahead of what was acknowledged, so that it never reports a loss that did not happen.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from zlib import crc32

_SIZE = 64
"""Bytes of the file: within one sector, so that it is never half written."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A batch that was stored: its sequence and its `ts`."""

    seq: int
    ts: int


class HighWaterMark:
    """The high-water mark of one database file, open for writing by its one writer."""

    def __init__(self, database: Path) -> None:
        """Open it, and make it where there is none. Raises OSError."""
        self._file = high_water_mark_file(database)
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def __enter__(self) -> "HighWaterMark":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, last: Acknowledged) -> None:
        """Record the last batch stored. Raises OSError."""
        os.pwrite(self._fd, _line(last), 0)

    def flush(self) -> None:
        """Wait until the disk has it. Raises OSError."""
        os.fdatasync(self._fd)

    def restore(self, last: Acknowledged) -> bool:
        """Make it again if its file was deleted or replaced; return whether it was. Raises OSError."""
        try:
            if os.path.samestat(self._file.stat(), os.fstat(self._fd)):
                return False
        except FileNotFoundError:
            pass
        os.close(self._fd)
        self._open()
        self.write(last)
        return True

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            os.close(self._fd)


def high_water_mark_file(database: Path) -> Path:
    """Return the file that holds the high-water mark of a database file."""
    return database.with_suffix(".witness")


MISSING = (
    "the high-water mark is missing or unreadable, so that a loss of the newest batches could not be noticed. This is "
    "expected where the database was copied by hand or restored from a backup without it; else find out what deleted "
    "it. An agent that runs here makes a new one"
)
"""Explanation of a missing mark beside a database that holds batches."""


def acknowledged(database: Path) -> Acknowledged | None:
    """Return the last batch acknowledged for a database file; None where its mark is missing or unreadable."""
    try:
        text = high_water_mark_file(database).read_bytes()
    except OSError:
        return None
    try:
        seq, ts, _ = text.split()
        mark = Acknowledged(int(seq), int(ts))
    except ValueError:
        return None
    return mark if _line(mark) == text else None


def _line(last: Acknowledged) -> bytes:
    words = f"{last.seq} {last.ts}".encode()
    return (words + f" {crc32(words):08x}".encode()).ljust(_SIZE - 1) + b"\n"
