"""Options of the screens: keys and choices of the settings, and the remembered state."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from textual.binding import Binding
from textual.keys import format_key

from pertoken.errors import BadInput
from pertoken.printable import literal
from pertoken.settings.fleet import BORDERS, THEMES
from pertoken.settings.values import USD
from pertoken.text.keys import KEY_OF, KEYS, WINDOWS_S, Key

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings


T = TypeVar("T")
FIXED = ("enter", "escape", "tab")
"""Keys that widgets also use: their actions keep them."""
SETTING = "screens.keys"
_SEPARATORS = {",": "comma", " ": "space"}
"""Names of characters that separate keys in a binding."""


def keymap_of(chosen: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the custom key of each action that has one, by action, as Textual names keys.

    Raises BadInput for an action that does not exist, and for two actions with one key.
    """
    keys: dict[str, str] = {}
    for action, key in chosen:
        if action not in KEY_OF:
            near = difflib.get_close_matches(action, KEY_OF, 1)
            did = f"; did you mean {near[0]}?" if near else "; docs/keys.md lists them"
            raise BadInput(f"{SETTING}: {literal(action)}: no such action{did}")
        name = "+".join(_name(part) if len(part) == 1 else part.lower() for part in _parts(key))
        if KEY_OF[action].key in FIXED or name in FIXED:
            raise BadInput(f"{SETTING}: {action} = {literal(key)!r}: enter, escape and tab cannot be changed")
        keys[action] = name
    _refuse_clashes(mapped(keys), keys)
    return keys


def _name(character: str) -> str:
    """Return Textual's name of a key that types a character: `question_mark`."""
    if character in _SEPARATORS:
        return _SEPARATORS[character]
    return next(iter(Binding.make_bindings([Binding(character, "")]))).key


def _parts(key: str) -> list[str]:
    return [key] if len(key) == 1 else key.replace("++", "+plus").split("+")


def mapped(keymap: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the table of keys with custom keys in place of their defaults."""
    return tuple(
        replace(key, key=keymap[key.action], label=format_key(keymap[key.action])) if key.action in keymap else key
        for key in KEYS
    )


def _refuse_clashes(keys: Sequence[Key], keymap: Mapping[str, str]) -> None:
    owners: dict[str, Key] = {}
    for key in keys:
        first_owner = owners.setdefault(key.key, key)
        if first_owner is not key:
            chosen, default = (key, first_owner) if key.action in keymap else (first_owner, key)
            raise BadInput(
                f"{SETTING}: {chosen.shown} is chosen for {chosen.action} and is also the key of {default.action}: "
                f"choose another key, or give {default.action} a key of its own"
            )


VERSION = 1
SCREENS = ("fleet", "savings", "plan", "rules", "hours")
MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class ArrangedTable:
    """Hidden columns and sort order of a table."""

    hidden: tuple[str, ...] = ()
    by: str | None = None
    """Key of the sort column; None: unsorted."""
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Remembered:
    """The remembered state; None: the default."""

    window_s: int | None = None
    screen: str | None = None
    theme: str | None = None
    borders: str | None = None
    refresh_s: float | None = None
    tables: Mapping[str, ArrangedTable] = field(default_factory=dict)
    """Arrangements by the id of the table."""
    database: str | None = None
    """Database of the remembered screen: over another one the screens begin with the fleet."""

    def with_table(self, name: str, table: ArrangedTable) -> Remembered:
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


def _one_of(value: object, choices: Sequence[T]) -> T | None:
    return next((choice for choice in choices if choice == value), None)


def _refresh(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value <= 3600:
        return None
    return float(value)


def _tables(values: object) -> dict[str, ArrangedTable]:
    if not isinstance(values, dict):
        return {}
    tables = {}
    for name, table in values.items():
        if not isinstance(table, dict):
            continue
        hidden, by = table.get("hidden"), table.get("by")
        tables[str(name)] = ArrangedTable(
            tuple(key for key in hidden if isinstance(key, str)) if isinstance(hidden, list) else (),
            by if isinstance(by, str) else None,
            table.get("turned") is True,
        )
    return tables


class SettingLine(NamedTuple):
    """One setting with the value that is in force."""

    name: str
    value: str
    origin: str
    """File or variable that set it; empty: it has its default."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Options:
    """Look of the screens, their state file, and functions that read this host."""

    theme: str = "dark"
    borders: str = "unicode"
    refresh_s: float = 2.0
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Custom keys by action, as Textual names keys."""
    memory: Path | None = None
    """State file of the screens; None: nothing is remembered."""
    database: str | None = None
    """Database that the screens show, as it is written."""
    currency: str = USD
    usd_per_kwh: float | None = None
    """Price of a kilowatt-hour times PUE; None: the price of the devices includes energy."""
    hour_rate: float | None = None
    """Dollars of an hour of work, by which advice with a late payback is folded; None: the default."""
    settings: Callable[[], Sequence[SettingLine]] = lambda: ()
    """Function that returns every setting, without secrets."""
    diagnose: Callable[[], Sequence[Finding]] | None = None
    """Function that returns the findings of `pertoken doctor`; None: the database is not of this host."""


def options_of(
    settings: Settings, diagnose: Callable[[], Sequence[Finding]] | None = None, database: str | None = None
) -> Options:
    """Return the options that the settings define. Raises BadInput for keys that clash."""
    return Options(
        settings.screens_theme,
        settings.screens_borders,
        settings.screens_refresh,
        keymap_of(settings.screens_keys),
        state_file() if settings.screens_remember else None,
        database,
        settings.currency_code,
        None if settings.energy_usd_per_kwh is None else settings.energy_usd_per_kwh * settings.energy_pue,
        settings.advisor_hour_rate,
        lambda: setting_lines(settings),
        diagnose,
    )


def setting_lines(settings: Settings) -> tuple[SettingLine, ...]:
    """Return every setting with the value that is in force, without passwords."""
    from pertoken.config import meanings
    from pertoken.settings.values import without_password

    explained, lines = meanings(), []
    for setting in settings.table():
        value = getattr(settings, setting.attribute)
        if setting.name in ("db", "ship.url") and value:
            value = without_password(value)
        elif setting.name == "agent.access":
            value = f"{len(value)} servers" if value else ()
        text = json.dumps(value, default=lambda item: asdict(item) if is_dataclass(item) else str(item))  # type: ignore[arg-type]
        shown = "(detected)" if value is None else text
        lines.append(
            SettingLine(setting.name, shown, settings.set_by.get(setting.attribute, ""), explained[setting.attribute])
        )
    return tuple(lines)
