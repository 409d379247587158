"""Tables above one another that share a height fairly."""

from collections.abc import Sequence

from textual import events
from textual.containers import Vertical

from pertoken.tui.widgets.rows import Rows

_LEAST = 2
"""Lines of a table worth showing: its header and a row."""


def shares(wanted: Sequence[int], height: int) -> list[int]:
    """Lines for each of several tables: what it wants, or a fair share of what is left, first come first served.

    A table that would get less than two lines gets none.
    """
    given = [0] * len(wanted)
    open_ = [i for i, lines in enumerate(wanted) if lines]
    while open_ and height // len(open_) < _LEAST:
        open_.pop()
    while open_:
        fair = height // len(open_)
        content = [i for i in open_ if wanted[i] <= fair]
        for i in content or open_[:1]:
            given[i] = min(wanted[i], height - fair * (len(open_) - 1))
            height -= given[i]
            open_.remove(i)
    return given


class Stack(Vertical):
    """Shares its height among its tables."""

    def on_resize(self, _: events.Resize) -> None:
        """Share the new height."""
        self.settle()

    def settle(self) -> None:
        """Give every table its lines, after what they show has changed."""
        if not self.size.height:
            return  # its first resize settles it
        tables = list(self.query(Rows))
        wanted = [table.wanted_height for table in tables]
        if sum(wanted) > self.size.height:
            wanted = [0 if table.spare else lines for table, lines in zip(tables, wanted, strict=True)]
        given = shares(wanted, self.size.height)
        for table, lines in zip(tables, given, strict=True):
            table.display = lines > 0
            table.styles.height = lines
