"""Text that others wrote, as it is sorted, printed and broken: nothing acts on a terminal or changes a log's lines."""

import re
from functools import lru_cache

_ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: control, format (direction of writing), surrogate, line and paragraph separators."""


def acts(char: str) -> bool:
    """Return whether a character acts on a terminal or on lines, in place of showing something."""
    if char.isprintable():
        return False
    from unicodedata import category  # a megabyte that the agent rarely needs

    return category(char) in _ACTING


def literal(text: str) -> str:
    """Return text on one line, with control, direction and surrogate characters written out, as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    # A byte that is not UTF-8 reaches Python as U+DC80 to U+DCFF: write out the byte.
    return "".join(
        (f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else char.encode("unicode_escape").decode())
        if acts(char)
        else char
        for char in text
    )


def csv_cell(text: str) -> str:
    """Return text as a cell of CSV: literal, and no formula where a spreadsheet opens it."""
    return ("'" if text.startswith(("=", "+", "-", "@")) else "") + literal(text)


def literal_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a text, each of them literal; tabs become spaces."""
    return tuple(literal(line) for line in text.expandtabs(4).split("\n"))


_ITEM = re.compile(r"(?:\d+\.|[-*]) +")
"""Mark of a list item."""


def hanging_indent(line: str) -> int:
    """Return the characters before the first word of a line, with the mark of a list item, if it has one."""
    spaces = len(line) - len(line.lstrip(" "))
    item = _ITEM.match(line, spaces)
    return item.end() if item is not None else spaces


def paragraphs(text: str) -> str:
    """Return documentation with the lines of each paragraph and list item joined; indented code keeps its lines."""
    joined: list[str] = []
    indent: int | None = None  # of lines that continue the last one; None if none do
    for line in text.splitlines():
        words = line.lstrip(" ")
        spaces, hanging = len(line) - len(words), hanging_indent(line)
        if words and spaces == indent == hanging:
            joined[-1] += f" {words}"
            continue
        joined.append(line)
        is_code = 0 < spaces == hanging
        indent = None if not words or is_code else hanging
    return "\n".join(joined)


_NUMBER = re.compile("([0-9]+)")


@lru_cache(maxsize=8192)  # a fleet's screen sorts the same names at each refresh
def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts names as people do: in any case, and numbers in them by value (host-2 before host-10)."""
    parts = _NUMBER.split(name.casefold())
    # A number by its digits without zeros in front: the longer one is the larger one, and no length is too much.
    numbers = [part.lstrip("0") if n % 2 else part for n, part in enumerate(parts)]
    return (*((len(part) if n % 2 else 0, part) for n, part in enumerate(numbers)), (0, name))


MAX_SHOWN = 200
"""Characters of a wrong value that a message repeats."""


def short(text: str) -> str:
    """Return a text for a message; of one that is longer than `MAX_SHOWN` its start and its length."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text):,} characters)"
