"""Texts of one column in few cells: what stays of each is what tells it from the others."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, partial

from rich.cells import cell_len, set_cell_size

MARK = "…"
MAX_WINDOWS = 64
"""Parts of the middle that are tried. Names differ near the end of what they have in common."""
MAX_ROUNDS = 3
Way = Callable[[str], str]
"""Shortens one text."""


@lru_cache(maxsize=64)
def cut_apart(texts: tuple[str, ...], width: int, keep_end: bool = False) -> tuple[str, ...]:
    """Return each text in at most `width` cells; a mark stands for what had to go.

    The end goes, or with `keep_end` the start. Where two texts would look the same then, their middle goes, or both
    ends: for all of them alike if one way tells all apart, else for as many as possible. What no way tells apart looks
    the same.
    """
    if width < 1:
        return ("",) * len(texts)
    shown = {text: text for text in texts if cell_len(text) <= width}
    long = dict.fromkeys(text for text in texts if text not in shown)
    usual = {text: _usual(text, width, keep_end) for text in long}
    for _ in range(MAX_ROUNDS):
        if not long:
            break
        told = _told_apart(long, shown.values(), width, keep_end)
        shown |= told
        long = {text: None for text in long if text not in told}
    result = usual | shown
    return tuple(result[text] for text in texts)


def _told_apart(long: Collection[str], taken: Collection[str], width: int, keep_end: bool) -> dict[str, str]:
    """Return the texts that the best way tells from all others, as it shortens them; the first way that tells all."""
    best: dict[str, str] = {}
    for way in _ways(width, keep_end, _common(long)):
        cut = {text: way(text) for text in long}
        times = Counter([*cut.values(), *taken])
        told = {text: short for text, short in cut.items() if times[short] == 1}
        if len(told) > len(best):
            best = told
        if len(best) == len(long):
            break
    return best


def _common(texts: Collection[str]) -> int:
    """Return how many characters the texts have in common at their start."""
    if not texts:
        return 0
    first, last = min(texts), max(texts)
    return next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _ways(width: int, keep_end: bool, common: int) -> Iterator[Way]:
    """Yield ways to shorten texts that begin with so many characters in common, best first."""
    for less in range(width):
        yield partial(_around, tail=width - 1 - less if keep_end else less, width=width)
    if width > 2:
        first = max(1, common - (width - 2) // 3)  # a little of what they have in common, then what differs
        for start in range(first, first + MAX_WINDOWS):
            yield partial(_within, start=start, width=width)


def _usual(text: str, width: int, keep_end: bool) -> str:
    return _around(text, width - 1 if keep_end else 0, width)


def _around(text: str, tail: int, width: int) -> str:
    """Return start and end of a text, the end in at most `tail` cells."""
    return _head(text, width - 1 - tail) + MARK + _tail(text, tail)


def _within(text: str, start: int, width: int) -> str:
    """Return a part of the middle of a text."""
    if cell_len(text[start:]) < width:
        return MARK + text[start:]
    return MARK + _head(text[start:], width - 2) + MARK


def _head(text: str, cells: int) -> str:
    return set_cell_size(text, cells).rstrip() if cell_len(text) > cells else text


def _tail(text: str, cells: int) -> str:
    start = max(0, len(text) - cells)  # no character takes less than a cell, but for those that combine
    while cell_len(text[start:]) > cells:
        start += 1
    return text[start:]
