"""State of the screens that is kept between runs in a small JSON file: window, screen, theme, columns and sort order.

It is optional: a file that is missing, damaged or of a newer version is ignored. `--once` does not use it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pertoken.settings.pages import BORDERS, THEMES
from pertoken.text.keys import WINDOWS_S

VERSION = 1
SCREENS = ("fleet", "savings", "plan", "rules", "hours")
MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Table:
    """Hidden columns and sort order of a table."""

    hidden: tuple[str, ...] = ()
    """Keys of the hidden columns."""
    by: str | None = None
    """Key of the sort column; None: unsorted."""
    turned: bool = False
    """Whether the sort order is reversed."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The remembered state; None: the default."""

    window_s: int | None = None
    screen: str | None = None
    theme: str | None = None
    borders: str | None = None
    refresh_s: float | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Arrangements by the id of the table."""
    database: str | None = None
    """Database whose screen it is: over another one the screens begin with the fleet."""

    def with_table(self, name: str, table: Table) -> Remembered:
        """Return a copy with the arrangement of one table replaced."""
        return replace(self, tables={**self.tables, name: table})


def state_file() -> Path:
    """Return the path of the state file in the user's state folder."""
    import platformdirs

    return Path(platformdirs.user_state_dir("pertoken")) / "screens.json"


def recall(file: Path | None, database: str | None = None) -> Remembered:
    """Return the state of a file; the defaults if it is missing or cannot be read."""
    if file is None:
        return Remembered()
    try:
        with file.open("rb") as opened:
            values = json.loads(opened.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return Remembered(database=database)
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return Remembered(database=database)
    return Remembered(
        _one_of(values.get("window_s"), WINDOWS_S),
        _one_of(values.get("screen"), SCREENS) if values.get("database") == database else None,
        _one_of(values.get("theme"), THEMES),
        _one_of(values.get("borders"), BORDERS),
        _refresh(values.get("refresh_s")),
        _tables(values.get("tables")),
        database,
    )


def remember(file: Path | None, remembered: Remembered) -> str | None:
    """Replace the file atomically; return an error message if it cannot be written."""
    if file is None:
        return None
    import tempfile

    text = json.dumps({"version": VERSION, **asdict(remembered)}, indent=1)
    written: Path | None = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as opened:
            written = Path(opened.name)
            opened.write(text)
        written.replace(file)
    except OSError as error:
        if written is not None:
            with suppress(OSError):
                written.unlink()
        return f"{file}: cannot be written: {error.strerror or error}; nothing is remembered after this run"
    return None


def _one_of(value: Any, known: tuple[Any, ...]) -> Any:
    return value if isinstance(value, str | int) and value in known else None


def _refresh(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0.5 <= value <= 3600
    return float(value) if usable else None


def _tables(values: Any) -> dict[str, Table]:
    if not isinstance(values, dict):
        return {}
    tables = {}
    for name, table in values.items():
        if not isinstance(table, dict):
            continue
        hidden, by = table.get("hidden"), table.get("by")
        tables[str(name)] = Table(
            tuple(key for key in hidden if isinstance(key, str)) if isinstance(hidden, list) else (),
            by if isinstance(by, str) else None,
            table.get("turned") is True,
        )
    return tables
