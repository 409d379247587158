"""Columns of tables: how a line becomes cells, and which columns fit a width."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from pertoken.printable import natural_key
from pertoken.tui.amounts import caption
from pertoken.tui.text.cut import MARK, cut_apart

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
    """Columns of a higher rank go first where the screen is narrow."""
    order: Callable[[L], float | None] | None = None
    """Number to sort by, shown at the right; without it the column is text."""
    least: int | None = None
    """It may be cut to this many cells."""
    keep_start: bool = False
    """Cut its end alone: sentences are read from their start, also where several then look alike."""
    wide: Callable[[L, int], str] | None = None
    """Its text in cells that are left over, where it can use them."""
    keep_end: bool = False
    """Cut it at its start, where the end tells more: `…Llama-3.1-70B`; in its middle where that tells lines apart."""

    @property
    def key(self) -> str:
        """Its name without the window that its figures are of: what a choice of columns is remembered by."""
        return _WINDOW.sub("", self.name)


def fit(cells: Sequence[Sequence[str]], columns: Sequence[Column[L]], width: int) -> dict[int, int]:
    """Width of each column that is shown, by its index. `cells` are rows of all columns.

    Columns with nothing in them are left out; then, until the rest fits in `width`, columns are cut to their least, the
    first by rank last, and dropped by rank. The last two stay together as long as `NAME_CELLS` are left for the first.
    """
    natural = {
        i: max(cell_len(caption(column.name)), *(cell_len(row[i]) for row in cells))
        for i, column in enumerate(columns)
        if any(row[i] for row in cells)
    }

    def least(i: int) -> int:
        cells = columns[i].least or natural[i]
        is_name = len(natural) == 2 and columns[i].least is not None and i == min(natural, key=rank_of)
        return min(natural[i], cells, NAME_CELLS) if is_name else min(natural[i], cells)

    def rank_of(i: int) -> int:
        return columns[i].rank

    def total(widths: dict[int, int]) -> int:
        return sum(widths.values()) + GAP * len(widths)

    while len(natural) > 1 and total({i: least(i) for i in natural}) > width:
        del natural[max(natural, key=rank_of)]
    shown = dict(natural)
    while total(shown) > width:
        able = [i for i in shown if shown[i] > least(i)] or list(shown)
        widest = max(able, key=lambda i: (columns[i].rank > 0, shown[i]))
        if shown[widest] <= 1:
            break
        shown[widest] -= 1
    return shown


def cut(texts: Sequence[str], width: int, column: Column[L]) -> list[str]:
    """Return the texts of a column in exactly `width` cells, numbers at the right; see `cut_apart` for what goes."""
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
    """Return the lines of a table with its title, `width` cells wide; None cuts nothing. No lines make no table."""
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
    """Lines sorted by the column with the key `by`: numbers from the largest, text from A, unknown last.

    `turned` reverses all but the unknown; without `by` the order is kept.
    """
    column = next((each for each in columns if each.key == by), None)
    if column is None:
        return lines
    if column.order is None:
        return sorted(lines, key=lambda line: natural_key(column.text(line)), reverse=turned)
    order = column.order
    known = [(value, line) for line in lines if (value := order(line)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=not turned)
    return [line for _, line in known] + [line for line in lines if order(line) is None]
