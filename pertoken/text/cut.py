"""Texts of one column cut to few cells so that they still differ from each other."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, partial

from rich.cells import cell_len, set_cell_size

MARK = "…"
MAX_WINDOWS = 64
"""Start positions that are tried for the middle part of a text, near the end of the common prefix."""
MAX_ROUNDS = 3
Cut = Callable[[str], str]
"""Function that shortens one text."""


@lru_cache(maxsize=64)
def cut_apart(texts: tuple[str, ...], width: int, keep_end: bool = False) -> tuple[str, ...]:
    """Return the texts in at most `width` cells each, with `…` in place of what is cut.

    The end is cut, or with `keep_end` the start. If two texts would then look the same, other cuts are tried: of the
    middle, then of both ends. The first cut that makes all texts distinct is used for all; else the cut that makes most
    of them distinct, and the search goes on for the rest. Texts that no cut makes distinct look the same.
    """
    if width < 1:
        return ("",) * len(texts)
    shown = {text: text for text in texts if cell_len(text) <= width}
    long = dict.fromkeys(text for text in texts if text not in shown)
    usual = {text: _usual(text, width, keep_end) for text in long}
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


def _usual(text: str, width: int, keep_end: bool) -> str:
    return _around(text, width - 1 if keep_end else 0, width)


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
