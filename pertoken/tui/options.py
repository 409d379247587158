"""Choices of the person at the screens: from the settings, and what was remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pertoken.settings.currency import USD
from pertoken.tui.keymap import keymap_of
from pertoken.tui.remembered import state_file

if TYPE_CHECKING:
    from pertoken.config import Settings


class SettingLine(NamedTuple):
    """One setting as it is in force."""

    name: str
    value: str
    origin: str
    """Where it was set; empty at its default."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Options:
    """How the screens look and what they remember."""

    theme: str = "dark"
    borders: str = "unicode"
    refresh_s: float = 2.0
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Key of each action that has one of its own, as Textual names it."""
    memory: Path | None = None
    """File that remembers; None: nothing is."""
    currency: str = USD
    usd_per_kwh: float | None = None
    """What a kilowatt-hour costs, facility included; None: energy is in the price of the devices."""
    settings: Callable[[], Sequence[SettingLine]] = lambda: ()
    """Returns every setting, without a secret."""
    diagnose: Callable[[], Sequence[Any]] | None = None
    """Returns the findings of `pertoken doctor`; None where the database is not of this host."""


def options_of(settings: Settings, diagnose: Callable[[], Sequence[Any]] | None = None) -> Options:
    """Return the options of some settings. Raises BadInput for keys that clash."""
    return Options(
        settings.screens_theme,
        settings.screens_borders,
        settings.screens_refresh,
        keymap_of(settings.screens_keys),
        state_file() if settings.screens_remember else None,
        settings.currency_code,
        None if settings.energy_usd_per_kwh is None else settings.energy_usd_per_kwh * settings.energy_pue,
        lambda: setting_lines(settings),
        diagnose,
    )


def setting_lines(settings: Settings) -> tuple[SettingLine, ...]:
    """Return every setting as it is in force, by its name; passwords are left out."""
    import json
    from dataclasses import asdict, is_dataclass

    from pertoken.config_file import meanings
    from pertoken.settings.values import without_password

    explained, lines = meanings(), []
    for each in settings.table():
        value = getattr(settings, each.attribute)
        if each.name in ("db", "ship.url") and value:
            value = without_password(value)
        elif each.name == "agent.access":
            value = f"{len(value)} servers" if value else ()
        text = json.dumps(value, default=lambda one: asdict(one) if is_dataclass(one) else str(one))  # type: ignore[arg-type]
        shown = "decided by what is there" if value is None else text
        lines.append(SettingLine(each.name, shown, settings.set_by.get(each.attribute, ""), explained[each.attribute]))
    return tuple(lines)
