"""Series of a window that are made when they are read."""

from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

from pertoken.evidence import HoursOfWeek, OperatingPoint, Series
from pertoken.window.series.points import Points


class Maker(Protocol):
    """Maker of the series of a window: `EvidenceReader`."""

    @property
    def number(self) -> int:
        """Number by which it is referred to."""
        ...

    def made(self, wanted: "WindowSeries") -> Series | None:
        """Return the summary of a series; None if it was not measured."""
        ...

    def observations(self, wanted: "WindowSeries") -> Points | None:
        """Return the observations of a series; None if it was not measured."""
        ...

    def minutes(self, deployment_id: int) -> tuple[OperatingPoint, ...]:
        """Return minutes of a deployment that differ in their load, oldest first."""
        ...


READERS: WeakValueDictionary[int, Maker] = WeakValueDictionary()
"""By their numbers."""
NUMBERS = count()


class WindowSeries(NamedTuple):
    """A series of the columns of a window: made when it is read, and its observations found again when asked for.

    It is pickled as a reference, for the same process and those forked from it. A tuple, since a run over 1,000
    deployments has 300,000 of them, and a frozen dataclass takes four times as long to make.
    """

    reader: Maker
    kind: str
    ids: tuple[int, ...]
    name: str

    def series(self) -> Series | None:
        """Return its summary; None if it was not measured."""
        return self.reader.made(self)

    def quantile(self, q: float) -> float:
        """Return the weighted quantile."""
        return self._points().quantile(q)

    def hours(self) -> HoursOfWeek:
        """Return the mean of each hour of the week."""
        return self._points().hours()

    def _points(self) -> Points:
        points = self.reader.observations(self)
        assert points is not None  # its summary was made of them
        return points

    def __reduce__(self) -> tuple[Any, ...]:
        return _window_series, (self.reader.number, self.kind, self.ids, self.name)


def _window_series(number: int, kind: str, ids: tuple[int, ...], name: str) -> WindowSeries:
    return WindowSeries(READERS[number], kind, ids, name)


@dataclass(frozen=True, slots=True)
class WindowMinutes:
    """Minutes of a deployment that differ in their load, found when they are asked for. Pickled as `WindowSeries`."""

    reader: Maker
    deployment_id: int

    def points(self) -> tuple[OperatingPoint, ...]:
        """Return them, oldest first."""
        return self.reader.minutes(self.deployment_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return _window_minutes, (self.reader.number, self.deployment_id)


def _window_minutes(number: int, deployment_id: int) -> WindowMinutes:
    return WindowMinutes(READERS[number], deployment_id)
