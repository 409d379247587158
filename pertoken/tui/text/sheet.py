"""Sheets: pages of facts as plain values, with sections of sentences and labelled values."""

from dataclasses import dataclass

Fact = tuple[str, str]
"""A label and its value."""


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
