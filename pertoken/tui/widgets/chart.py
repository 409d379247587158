"""Chart of one series in the lines that tables leave free."""

from collections.abc import Callable, Sequence
from functools import cache

from rich.text import Text
from textual.widget import Widget

from pertoken.text.fleet import MAX_HEIGHT, MIN_HEIGHT, chart

_BLANK = 1
"""Lines left free between the tables and the chart."""


class Chart(Widget):
    """Bars over the whole width. `show` takes a function because the values are needed only if there is space."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._values: Callable[[], Sequence[float | None]] = tuple

    def show(self, values: Callable[[], Sequence[float | None]]) -> None:
        """Show these values, in the order of time; None is a gap."""
        self._values = cache(values)
        self.refresh()

    def lines_of(self, free: int) -> int:
        """Return the lines that it takes of `free` lines; 0 if they are too few or nothing is known."""
        lines = min(free - _BLANK, MAX_HEIGHT)
        return lines if lines >= MIN_HEIGHT and any(value is not None for value in self._values()) else 0

    def render(self) -> Text:
        """Return title and bars at the present size."""
        lines = chart(self._title, self._values(), max(1, self.size.width), self.size.height)
        return Text("\n".join(lines), no_wrap=True)
