"""Options of the screens, taken from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pertoken.settings.values import USD
from pertoken.tui.keymap import keymap_of
from pertoken.tui.remembered import state_file

if TYPE_CHECKING:
    from pertoken.config import Settings


class SettingLine(NamedTuple):
    """One setting with the value that is in force."""

    name: str
    value: str
    origin: str
    """File or variable that set it; empty: it has its default."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Options:
    """Look of the screens, their state file, and functions for what they show of this host."""

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
    diagnose: Callable[[], Sequence[Any]] | None = None
    """Function that returns the findings of `pertoken doctor`; None: the database is not of this host."""


def options_of(
    settings: Settings, diagnose: Callable[[], Sequence[Any]] | None = None, database: str | None = None
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
    import json
    from dataclasses import asdict, is_dataclass

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
