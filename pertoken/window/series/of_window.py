"""Series of a window that are made when they are read."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pertoken.evidence import HoursOfWeek, OperatingPoint, Series
from pertoken.window.series.points import Points


class Maker(Protocol):
    """Maker of the series of a window: `EvidenceReader`."""

    def made(self, wanted: "WindowSeries") -> Series | None:
        """Return the summary of a series; None if it was not measured."""
        ...

    def observations(self, wanted: "WindowSeries") -> Points | None:
        """Return the observations of a series; None if it was not measured."""
        ...

    def minutes(self, deployment_id: int) -> tuple[OperatingPoint, ...]:
        """Return minutes of a deployment that differ in their load, oldest first."""
        ...


class WindowSeries(NamedTuple):
    """A series of the columns of a window: made when it is read, and its observations found again when asked for.

    A tuple, since a run over 1,000 deployments has 300,000 of them, and a frozen dataclass takes four times as long to
    make.
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


@dataclass(frozen=True, slots=True)
class WindowMinutes:
    """Minutes of a deployment that differ in their load, found when they are asked for."""

    reader: Maker
    deployment_id: int

    def points(self) -> tuple[OperatingPoint, ...]:
        """Return them, oldest first."""
        return self.reader.minutes(self.deployment_id)
