"""Filters of rows: words that a row must contain, must not contain, or contains approximately."""

from collections.abc import Sequence

from pertoken.text.columns import Column, L
from pertoken.text.program.key_names import key_name
from pertoken.text.words import literal

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
        whole = " ".join(cells)
        return all((word in whole) is not (prefix == INVERSE) for word in wanted)

    known = searched(lines, columns) if searched_cells is None else searched_cells
    return [line for line, cells in zip(lines, known, strict=True) if passes(cells)]


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
