"""Columns of tables: text of cells, and the columns that fit a width."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from pertoken.printable import natural_key
from pertoken.text.amounts import caption
from pertoken.text.keys import key_name
from pertoken.text.words import literal

MARK = "…"
MAX_WINDOWS = 64
"""Start positions that are tried for the middle part of a text, near the end of the common prefix."""
MAX_ROUNDS = 3
Cut = Callable[[str], str]


@lru_cache(maxsize=64)
def cut_apart(texts: tuple[str, ...], width: int, keep_end: bool = False) -> tuple[str, ...]:
    """Return the texts in at most `width` cells each, with `…` in place of the cut part.

    The end is cut, or with `keep_end` the start. If two texts would then look the same, other cuts are tried: of the
    middle, then of both ends. The first cut that makes all texts distinct is used for all; else the cut that makes most
    of them distinct, and the search goes on for the rest. Texts that no cut makes distinct look the same.
    """
    if width < 1:
        return ("",) * len(texts)
    shown = {text: text for text in texts if cell_len(text) <= width}
    long = dict.fromkeys(text for text in texts if text not in shown)
    usual = {text: _around(text, width - 1 if keep_end else 0, width) for text in long}
    for _ in range(MAX_ROUNDS):
        if not long:
            break
        distinct = _distinct(long, shown.values(), width, keep_end)
        shown |= distinct
        long = {text: None for text in long if text not in distinct}
    result = usual | shown
    return tuple(result[text] for text in texts)


def _distinct(long: Collection[str], taken: Collection[str], width: int, keep_end: bool) -> dict[str, str]:
    """Return the texts that the best cut makes distinct, with their short forms."""
    best: dict[str, str] = {}
    for shorten in _cuts(width, keep_end, _common(long)):
        shortened = {text: shorten(text) for text in long}
        if any(len(short) <= len(MARK) for short in shortened.values()) and width > len(MARK):
            continue  # nothing is left of a text
        times = Counter([*shortened.values(), *taken])
        distinct = {text: short for text, short in shortened.items() if times[short] == 1}
        if len(distinct) > len(best):
            best = distinct
        if len(best) == len(long):
            break
    return best


def _common(texts: Collection[str]) -> int:
    """Return the length of the common prefix of the texts."""
    if not texts:
        return 0
    first, last = min(texts), max(texts)
    return next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _cuts(width: int, keep_end: bool, common: int) -> Iterator[Cut]:
    """Yield cuts for texts with a common prefix of `common` characters, best first."""
    for moved in range(width):
        yield partial(_around, tail=width - 1 - moved if keep_end else moved, width=width)
    if width > 2:
        first = max(1, common - (width - 2) // 3)  # the end of the common prefix, then the part that differs
        for start in range(first, first + MAX_WINDOWS):
            yield partial(_within, start=start, width=width)


def _around(text: str, tail: int, width: int) -> str:
    """Return the start and the end of a text; the end has at most `tail` cells."""
    return _head(text, width - 1 - tail) + MARK + _tail(text, tail)


def _within(text: str, start: int, width: int) -> str:
    """Return the part of a text from the character `start`."""
    if cell_len(text[start:]) < width:
        return MARK + text[start:]
    return MARK + _head(text[start:], width - 2) + MARK


def _head(text: str, cells: int) -> str:
    return set_cell_size(text, cells).rstrip() if cell_len(text) > cells else text


def _tail(text: str, cells: int) -> str:
    start = max(0, len(text) - cells)  # all characters but combining ones take a cell or more
    while cell_len(text[start:]) > cells:
        start += 1
    return text[start:]


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

    Empty columns are left out. If the rest does not fit in `width` with all columns at their `min_cells`, columns of
    the highest rank are left out; then the widest are cut, columns of rank 0 last. The last two columns are both shown
    as long as `NAME_CELLS` are left for the first.
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
    """Return the texts of a column in exactly `width` cells, numbers aligned right; `cut_apart` cuts them."""
    if all(cell_len(text) <= width for text in texts):
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
    ordered = [(value, line) for line in lines if (value := order(line)) is not None]
    ordered.sort(key=lambda pair: pair[0], reverse=not turned)
    return [line for _, line in ordered] + [line for line in lines if order(line) is None]


INVERSE, FUZZY = "!", "~"


def searched(lines: Sequence[L], columns: Sequence[Column[L]]) -> Sequence[Sequence[str]]:
    """Return the cells of all lines as a filter reads them."""
    texts = [column.text for column in columns if not column.is_plot]
    return [[text(line).casefold() for text in texts] for line in lines]


def matching(
    lines: Sequence[L], columns: Sequence[Column[L]], text: str, searched_cells: Sequence[Sequence[str]] | None = None
) -> Sequence[L]:
    """Return the lines that pass a filter. Case does not matter. Columns that are not shown count too, plots do not.

    `searched_cells` is the result of `searched` for these lines, which a filter that is typed needs at every key.

    `words`: lines that contain every word. `!words`: lines that contain none of them. `~words`: lines that for each
    word have a cell with its letters in this order.
    """
    text = text.strip()
    prefix = text[:1] if text[:1] in (INVERSE, FUZZY) else ""
    wanted = text.removeprefix(prefix).casefold().split()
    if not wanted:
        return lines

    def passes(cells: Sequence[str]) -> bool:
        if prefix == FUZZY:
            return all(any(_in_order(word, cell) for cell in cells) for word in wanted)
        line_text = " ".join(cells)
        return all((word in line_text) is not (prefix == INVERSE) for word in wanted)

    cells_by_line = searched(lines, columns) if searched_cells is None else searched_cells
    return [line for line, cells in zip(lines, cells_by_line, strict=True) if passes(cells)]


def kept(text: str, matched: int, count: int) -> str:
    """Return the sentence about a filter that stays: `/llama keeps 3 of 12 rows: esc drops it, / edits it.`"""
    key = key_name("filter")
    return f"{key}{literal(text.strip())} keeps {matched} of {count} rows: esc drops it, {key} edits it."


def nothing_matches(text: str) -> str:
    """Return the sentence shown if no row passes the filter."""
    text = text.strip()
    words = literal(text[1:].strip() if text[:1] in (INVERSE, FUZZY) else text)
    if text.startswith(INVERSE):
        return f"Every row contains a word of “{words}”: esc drops the filter."
    if text.startswith(FUZZY):
        return f"No row has the letters of “{words}” in this order: esc drops the filter."
    return f"No row contains every word of “{words}”: esc drops the filter."


def _in_order(word: str, cell: str) -> bool:
    """Return whether a cell has the letters of a word in their order."""
    letters = iter(cell)
    return all(letter in letters for letter in word)
