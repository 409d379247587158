"""What cells of public measurements hold: numbers, and names in the words of others (`names.toml`)."""

import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def number(text: str | None) -> float | None:
    """A finite number in a cell, or None."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if math.isfinite(found) else None


@cache
def names() -> dict[str, Any]:
    """The table of names and assumptions."""
    return tomllib.loads((HERE / "names.toml").read_text(encoding="utf-8"))


def first(table: Mapping[str, Any], text: str, pattern: bool = False) -> Any | None:
    """The value of the first key that is in a text, or that matches it as a `pattern`."""
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
        """The cell as a number; None for one that is blank, a word or far from anything that can be."""
        found = number(self[column])
        least, most = names()["plausible"].get(column, (-math.inf, math.inf))
        return found if found is not None and least <= found <= most else None
