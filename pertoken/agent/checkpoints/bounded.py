"""Bounded reads of files that somebody else wrote: regular files only, up to a number of bytes."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

MOST = 2**60
"""No count of parameters, layers or bytes is larger."""


class FileRefused(Exception):
    """A file is not what it should be. The message names the file and never holds a part of it."""


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """A regular file for reading; neither a pipe nor a device, which might never end.

    Raises FileRefused for those, OSError if it cannot be opened.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileRefused(f"{path.name}: not a regular file")
        yield file


def read_json(path: Path, limit: int) -> object:
    """Return the JSON in a file of at most `limit` bytes.

    Raises FileRefused, OSError.
    """
    with opened(path) as file:
        return parse_json(file.read(limit + 1), path, limit)


def parse_json(body: bytes, path: Path, limit: int) -> object:
    """Return JSON of at most `limit` bytes. Raises FileRefused."""
    if len(body) > limit:
        raise FileRefused(f"{path.name}: larger than {limit / 1e6:g} MB, so it was not read")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise FileRefused(f"{path.name}: not JSON") from None


def whole(value: object) -> int | None:
    """Return the value if it is a whole number above 0 and of a size that can be."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST else None
