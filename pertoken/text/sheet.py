"""Sheets: pages of facts as plain values, with sections of sentences and labelled values."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

from pertoken.printable import hanging_indent

INDENT, BETWEEN = 2, 2
"""Cells before the lines of a section, and between a label and its value."""
MIN_LABEL = 12
"""Cells that labels may take on any screen; on a narrow one they are folded at half of the width."""
StyledText = tuple[str, str]
"""A text of one style: `title`, `label` or `text`."""
Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """A title with lines. All text is literal: it has no characters that control a terminal."""

    title: str
    lines: tuple[Fact | str, ...]


Sheet = tuple[Section, ...]


def sheet(*sections: Section) -> Sheet:
    """Return the sections that have lines."""
    return tuple(section for section in sections if section.lines)


def text_of(sheet: Sheet) -> str:
    """Return a sheet as text, with a line for each of its lines; nothing is cut."""
    lines: list[str] = []
    for section in sheet:
        label = label_width(section) + 2
        rows = (line if isinstance(line, str) else f"{line[0]:<{label}}{line[1]}" for line in section.lines)
        lines += [section.title, *(f"  {row}" for row in rows), ""]
    return "\n".join(lines)


def label_width(section: Section) -> int:
    """Return the length of the longest label."""
    return max((len(line[0]) for line in section.lines if not isinstance(line, str)), default=0)


def laid_out(sheet: Sheet, width: int) -> list[tuple[StyledText, ...]]:
    """Return a sheet as lines of at most `width` cells, the facts of a section before its sentences."""
    return [line for section in sheet for line in _lines(section, max(1, width))]


def _lines(section: Section, width: int) -> Iterator[tuple[StyledText, ...]]:
    for text in folded(section.title, width):
        yield ((text, "title"),)
    inner = max(1, width - INDENT)
    facts = [line for line in section.lines if not isinstance(line, str)]
    labels = max((cell_len(label) for label, _ in facts), default=0)
    labels = min(labels, max(MIN_LABEL, inner // 2))
    values = max(1, inner - labels - BETWEEN)
    for label, value in facts:
        for name, text in zip_longest(folded(label, labels), folded(value, values), fillvalue=""):
            yield (" " * INDENT, "text"), (name + " " * (labels + BETWEEN - cell_len(name)), "label"), (text, "text")
    for line in section.lines:
        if isinstance(line, str):
            for text in _hanging(line, inner):
                yield ((" " * INDENT + text, "text"),)
    yield ()


def _hanging(text: str, width: int) -> list[str]:
    """Return a text as `folded` does; its lines go on below its first word where that leaves half of the width."""
    indent = hanging_indent(text)
    if cell_len(text) <= width or 2 * indent > width:
        return folded(text, width)
    first, *others = folded(text[indent:], width - indent)
    return [text[:indent] + first, *(" " * indent + line for line in others)]


def folded(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` cells, broken between words; only longer words are broken."""
    return [line for paragraph in text.split("\n") for line in _folded(paragraph, max(1, width))]


def _folded(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    words = text.lstrip(" ").split(" ")
    words[0] = text[: len(text) - len(text.lstrip(" "))] + words[0]
    lines, line = [], ""
    for word in words:
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        lines += [line] if line else []
        *full_lines, line = chop_cells(word, width) if cell_len(word) > width else [word]
        lines += full_lines
    return [*lines, line]
