"""Parts of a window, each read when it is first looked at."""

from collections.abc import Callable
from typing import Any

HISTOGRAMS_PART = "histograms"
"""The part with the bucket counts of each histogram, by epoch and metric."""
COUNTED_PART = "counted"
"""The part with the names of the counters of which some epoch counted something."""
EARLY_PARTS = ("device_time", "deployment_time", "share", COUNTED_PART)
"""Parts without which there is no evidence: time, generated tokens, and which counters there are. The other columns of
four weeks take twice as long, and all rows of counters ten times."""
ROWS = ("counters", "device", "host", "deployment", "share")
"""Parts of rows: all but the histograms, which take half of the time."""
PARTS = (*ROWS, HISTOGRAMS_PART)
"""All parts, in the order in which they are read where all are wanted."""


class Unread(BaseException):
    """Access to a part that was not read, in a process without the database."""


class Parts:
    """Parts of one window by name. A process that is `detached` has those that were read before it was forked."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        """`read` reads a part by name, in the process that has the database."""
        self._read = read
        self._values: dict[str, Any] = {}
        self._detached = False
        self.missed: str | None = None
        """First part that a detached process requested in vain."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the parts that were read."""
        return frozenset(self._values)

    def __getitem__(self, name: str) -> Any:
        """Return a part. Raises Unread in a process without the database."""
        if name not in self._values:
            if self._detached:
                self.missed = self.missed or name
                raise Unread(name)
            self._values[name] = self._read(name)
        return self._values[name]

    def put(self, name: str, value: Any) -> None:
        """Take over a part that was read elsewhere."""
        self._values[name] = value

    def read_by(self, read: Callable[[str], Any]) -> None:
        """Read further parts in another way."""
        self._read = read

    def take_missed(self) -> str | None:
        """Return the first part that was requested in vain since the last call; None if there was none."""
        missed, self.missed = self.missed, None
        return missed

    def detach(self) -> None:
        """Stop reading: this process has no database."""
        self._detached = True


def no_parts() -> Parts:
    """Return the parts of a window of which everything is known already."""
    return Parts(no_part)


def no_part(name: str) -> Any:
    """Raise LookupError: there is no such part."""
    raise LookupError(f"{name} is no part of this window")
