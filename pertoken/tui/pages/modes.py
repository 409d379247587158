"""Pages that a key opens from anywhere, by mode. The modules of a page are imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from pertoken.tui.pages.page import Page

if TYPE_CHECKING:
    from pertoken.text.keys import KeyChoice
    from pertoken.tui.options import SettingLine
    from pertoken.tui.source import ScreenView

MODES = ("fleet", "savings", "plan", "rules", "hours", "settings")
LATER = ("savings_page", "decision_page", "plan_page", "rules_page", "hours_page", "settings_page", "course_page")
"""Modules of pages that the first frame of the fleet does not need."""


def page_of(
    mode: str,
    view: Callable[[], ScreenView],
    choices: Callable[[], Sequence[KeyChoice]],
    settings: Callable[[], Sequence[SettingLine]],
) -> Page:
    """Return the page of a mode."""
    if mode == "settings":
        from pertoken.tui.pages.settings_page import SettingsPage

        return SettingsPage(view, choices, settings)
    heading = mode.capitalize()
    module = import_module(f"pertoken.tui.pages.{mode}_page")
    page: Page = getattr(module, f"{heading}Page")(view, heading, windowed=mode == "fleet")
    return page


def load_later() -> None:
    """Import the modules that the first frame did not need, so that keys do not wait for them later."""
    for name in LATER:
        import_module(f"pertoken.tui.pages.{name}")
