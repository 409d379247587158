"""Values of cells in public measurements: numbers, and names translated by `names.toml`."""

import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def number(text: str | None) -> float | None:
    """Return a finite number in a cell, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@cache
def names() -> dict[str, Any]:
    """Return the table of names and assumptions."""
    return tomllib.loads((FOLDER / "names.toml").read_text(encoding="utf-8"))


def first(table: Mapping[str, Any], text: str, pattern: bool = False) -> Any | None:
    """Return the value of the first key that is in a text, or that matches it as a `pattern`."""
    for key, value in table.items():
        if re.search(key, text) if pattern else key in text:
            return value
    return None


class Cells(dict[str, str]):
    """A line of a file by its columns; a cell that it lacks is blank."""

    def __missing__(self, column: str) -> str:
        """Blank."""
        return ""

    def number(self, column: str) -> float | None:
        """Return the cell as a number; None for one that is blank, a word or far from anything that can be."""
        value = number(self[column])
        least, most = names()["plausible"].get(column, (-math.inf, math.inf))
        return value if value is not None and least <= value <= most else None
