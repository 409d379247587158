"""Columns of tables: text of cells, and the columns that fit a width."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from pertoken.printable import natural_key
from pertoken.text.amounts import caption
from pertoken.text.cut import MARK, cut_apart

L = TypeVar("L")

_WINDOW = re.compile(r" in \d+\w+")
GAP = 2
"""Cells between two columns."""
NAME_CELLS = 12
"""Cells to which a name may be cut where one column is left beside it: either of them alone helps nobody."""


@dataclass(frozen=True, slots=True)
class Column(Generic[L]):
    """One column of a table of lines."""

    name: str
    text: Callable[[L], str]
    rank: int
    """On a narrow screen, columns of the highest rank are left out first."""
    order: Callable[[L], float | None] | None = None
    """Number to sort by; its cells are aligned right. None: the column is text."""
    min_cells: int | None = None
    """Fewest cells that it may be cut to; None: it is never cut."""
    keep_start: bool = False
    """Cut only the end, as for sentences, although several texts may then look the same."""
    wide: Callable[[L, int], str] | None = None
    """Text for a given number of cells, used if the table has cells left over."""
    keep_end: bool = False
    """Cut the start, because the end is more specific: `…Llama-3.1-70B`. `cut_apart` has the exceptions."""
    is_plot: bool = False
    """Whether its cells are bars, which no filter reads."""

    @property
    def key(self) -> str:
        """Name without the window, by which hidden columns and the sort column are remembered."""
        return _WINDOW.sub("", self.name)


def fit(cells: Sequence[Sequence[str]], columns: Sequence[Column[L]], width: int) -> dict[int, int]:
    """Return the width in cells of each column that is shown, by its index. `cells` are rows of all columns.

    Empty columns are left out. If the rest does not fit in `width` with all columns at their `min_cells`, those of the
    highest rank are left out; then the widest are cut, columns of rank 0 last. The last two columns are both shown as
    long as `NAME_CELLS` are left for the first.
    """
    natural = {
        i: max(cell_len(caption(column.name)), *(cell_len(row[i]) for row in cells))
        for i, column in enumerate(columns)
        if any(row[i] for row in cells)
    }

    def min_width(i: int) -> int:
        cells = columns[i].min_cells or natural[i]
        is_name = len(natural) == 2 and columns[i].min_cells is not None and i == min(natural, key=rank_of)
        return min(natural[i], cells, NAME_CELLS) if is_name else min(natural[i], cells)

    def rank_of(i: int) -> int:
        return columns[i].rank

    def total(widths: dict[int, int]) -> int:
        return sum(widths.values()) + GAP * len(widths)

    while len(natural) > 1 and total({i: min_width(i) for i in natural}) > width:
        del natural[max(natural, key=rank_of)]
    shown = dict(natural)
    while total(shown) > width:
        able = [i for i in shown if shown[i] > min_width(i)] or list(shown)
        widest = max(able, key=lambda i: (columns[i].rank > 0, shown[i]))
        if shown[widest] <= 1:
            break
        shown[widest] -= 1
    return shown


def cut(texts: Sequence[str], width: int, column: Column[L]) -> list[str]:
    """Return the texts of a column in exactly `width` cells, numbers aligned right; see `cut_apart` for what is cut."""
    fits = all(cell_len(text) <= width for text in texts)
    if fits:
        shown: Sequence[str] = texts
    elif column.keep_start:
        shown = [text if cell_len(text) <= width else set_cell_size(text, width - 1) + MARK for text in texts]
    else:
        shown = cut_apart(tuple(texts), width, column.keep_end)
    pads = (" " * (width - cell_len(text)) for text in shown)
    return [pad + text if column.order else text + pad for text, pad in zip(shown, pads, strict=True)]


def table(title: str, lines: Sequence[L], columns: Sequence[Column[L]], width: int | None) -> list[str]:
    """Return a table with its title as lines of `width` cells; None: nothing is cut. Empty without lines."""
    if not lines:
        return []
    cells = [[column.text(line) for column in columns] for line in lines]
    widths = fit(cells, columns, sys.maxsize if width is None else width - 2)

    shown = [
        cut([caption(columns[i].name)], width, columns[i]) + cut([row[i] for row in cells], width, columns[i])
        for i, width in widths.items()
    ]
    return [caption(title), *("  " + (" " * GAP).join(row).rstrip() for row in zip(*shown, strict=True))]


def arranged(lines: Sequence[L], columns: Sequence[Column[L]], by: str | None, turned: bool) -> Sequence[L]:
    """Return the lines sorted by the column with the key `by`: numbers from the largest, text from A, unknown last.

    `turned` reverses the known values only; with `by` None the order is kept.
    """
    column = next((candidate for candidate in columns if candidate.key == by), None)
    if column is None:
        return lines
    if column.order is None:
        return sorted(lines, key=lambda line: natural_key(column.text(line)), reverse=turned)
    order = column.order
    known = [(value, line) for line in lines if (value := order(line)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=not turned)
    return [line for _, line in known] + [line for line in lines if order(line) is None]
