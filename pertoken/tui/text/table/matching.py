"""Filters of rows: words that a row holds, does not hold, or nearly holds."""

from collections.abc import Callable, Sequence

from pertoken.tui.text.columns import Column, L
from pertoken.tui.text.words import literal

INVERSE, FUZZY = "!", "~"
Test = Callable[[str], bool]


def matching(lines: Sequence[L], columns: Sequence[Column[L]], text: str) -> Sequence[L]:
    """Return the lines that a filter keeps. Case never matters; columns that are too narrow to be shown count as well.

    Words: a line holds every one of them. `!` before them: lines that hold none of them. `~`: the letters of each word
    come in this order in a line's cell.
    """
    text = text.strip()
    way = text[:1] if text[:1] in (INVERSE, FUZZY) else ""
    wanted = text.removeprefix(way).casefold().split()
    if not wanted:
        return lines

    def kept(line: L) -> bool:
        cells = [column.text(line).casefold() for column in columns]
        if way == FUZZY:
            return all(any(_in_order(word, cell) for cell in cells) for word in wanted)
        whole = " ".join(cells)
        return all((word in whole) is not (way == INVERSE) for word in wanted)

    return [line for line in lines if kept(line)]


def nothing_matches(text: str) -> str:
    """Return the sentence in place of the rows, where a filter keeps none."""
    text = text.strip()
    words = literal(text[1:].strip() if text[:1] in (INVERSE, FUZZY) else text)
    if text.startswith(INVERSE):
        return f"Every row here holds a word of “{words}”: esc drops the filter."
    if text.startswith(FUZZY):
        return f"No row here has the letters of “{words}” in this order: esc drops the filter."
    return f"No row here holds every word of “{words}”: esc drops the filter."


def _in_order(word: str, cell: str) -> bool:
    """Return whether the letters of a word come in its order in a cell."""
    letters = iter(cell)
    return all(letter in letters for letter in word)
