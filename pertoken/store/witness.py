"""The witness: the last batch that was acknowledged, told outside the database.

SQLite takes a write-ahead log as ended at the first frame that does not add up: what came after a flipped bit is gone,
and an integrity check finds nothing wrong. The witness remembers how far the batches had come. It is overwritten in
place after every commit, without waiting for the disk; `flush` does that, now and then. So it may fall behind after a
power cut, when it can miss a loss, but is never ahead of what was acknowledged and never raises a false alarm.
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


class Witness:
    """The witness of one database file, open for writing by its one writer."""

    def __init__(self, database: Path) -> None:
        """Open it, and make it where there is none. Raises OSError."""
        self._file = witness_file(database)
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def __enter__(self) -> "Witness":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, last: Acknowledged) -> None:
        """Note the last batch stored. Raises OSError."""
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
        """Leave it, flushed."""
        try:
            self.flush()
        finally:
            os.close(self._fd)


def witness_file(database: Path) -> Path:
    """Where the witness of a database file is."""
    return database.with_suffix(".witness")


MISSING = (
    "the high-water mark is missing or unreadable, so that a loss of the newest batches could not be noticed. This is "
    "expected where the database was copied by hand or restored from a backup without it; else find out what deleted "
    "it. An agent that runs here makes a new one"
)
"""What it means that there is no witness beside a database that holds batches."""


def acknowledged(database: Path) -> Acknowledged | None:
    """What the witness of a database file says; None where there is none, or nothing that can be believed."""
    try:
        text = witness_file(database).read_bytes()
    except OSError:
        return None
    try:
        seq, ts, _ = text.split()
        found = Acknowledged(int(seq), int(ts))
    except ValueError:
        return None
    return found if _line(found) == text else None


def _line(last: Acknowledged) -> bytes:
    words = f"{last.seq} {last.ts}".encode()
    return (words + f" {crc32(words):08x}".encode()).ljust(_SIZE - 1) + b"\n"
