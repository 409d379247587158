"""Tables above one another that share one height."""

from collections.abc import Sequence

from textual import events
from textual.containers import Vertical

from pertoken.tui.widgets.rows import Rows

_MIN_LINES = 2
"""Fewest lines of a table that is shown: its header and a row."""


def shares(wanted: Sequence[int], height: int) -> list[int]:
    """Return the lines of each table: what it wants, or an equal share of what is left.

    If a share would be under two lines, the last tables get none.
    """
    given = [0] * len(wanted)
    unserved = [i for i, lines in enumerate(wanted) if lines]
    while unserved and height // len(unserved) < _MIN_LINES:
        unserved.pop()
    while unserved:
        fair = height // len(unserved)
        content = [i for i in unserved if wanted[i] <= fair]
        for i in content or unserved[:1]:
            given[i] = min(wanted[i], height - fair * (len(unserved) - 1))
            height -= given[i]
            unserved.remove(i)
    return given


class Stack(Vertical):
    """Container that shares its height among its tables."""

    def on_resize(self, _: events.Resize) -> None:
        """Share the new height."""
        self.settle()

    def settle(self) -> None:
        """Set the height of every table; call it when their rows have changed."""
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
