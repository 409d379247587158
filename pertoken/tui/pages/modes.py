"""Pages that a key opens from anywhere, by mode. The modules of a page are imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from textual import events
from textual.app import App

from pertoken.tui.pages.fleet_page import FleetPage
from pertoken.tui.pages.page import Page
from pertoken.tui.process.idle import Step

if TYPE_CHECKING:
    from pertoken.tui.options import SettingLine
    from pertoken.tui.source import View
    from pertoken.tui.text.program.choices import Choice

MODES = ("fleet", "savings", "plan", "rules", "hours", "settings")
LATER = ("savings_page", "decision_page", "plan_page", "rules_page", "hours_page", "settings_page", "columns_page")
"""Modules of pages that the first frame of the fleet does not need."""


def page_of(
    mode: str,
    view: Callable[[], View],
    choices: Callable[[], Sequence[Choice]],
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
    import_module("pertoken.tui.widgets.course_plots")


def preparation(app: App[None], keys_page: Callable[[], Page]) -> list[Step]:
    """Return the steps that prepare the pages of keys: a first visit takes several times as long as another.

    Pages are mounted, then each is laid out and drawn without being shown. `keys_page` returns the installed page of
    keys.
    """
    pages: list[Callable[[], Page | None]] = [*(partial(_page_in, app, mode) for mode in MODES), keys_page]
    return [
        *(partial(_mount_mode, app, mode) for mode in MODES),
        lambda: _mount(app, keys_page()),
        partial(_mount_course, app),
        *(partial(step, app, page) for page in pages for step in (_lay_out, _draw)),
    ]


def _mount_mode(app: App[None], mode: str) -> None:
    """Mount the page of a mode without showing it; nothing is done if it is mounted, or while the app ends."""
    if app.is_running and mode not in app._screen_stacks:
        app._init_mode(mode)


def _mount_course(app: App[None]) -> None:
    fleet = _page_in(app, "fleet")
    if isinstance(fleet, FleetPage):
        _mount(app, fleet.course_page())


def _mount(app: App[None], page: Page) -> None:
    """Mount an installed page without showing it, and lay it out; nothing is done if it is mounted."""
    if app.is_running and not page.is_running:
        app._get_screen(page)
        page.post_message(events.ScreenResume())


def _lay_out(app: App[None], page: Callable[[], Page | None]) -> None:
    """Lay out a mounted page that is not shown; its widgets then adapt to their sizes."""
    hidden = _hidden(app, page())
    if hidden is not None:
        hidden._screen_resized(app.size)


def _draw(app: App[None], page: Callable[[], Page | None]) -> None:
    """Draw a page that is laid out but not shown: its widgets keep their lines until these change."""
    hidden = _hidden(app, page())
    if hidden is not None:
        hidden._compositor.render_strips()


def _page_in(app: App[None], mode: str) -> Page | None:
    page = next(iter(app._screen_stacks.get(mode, ())), None)
    return page if isinstance(page, Page) else None


def _hidden(app: App[None], page: Page | None) -> Page | None:
    return page if page is not None and app.is_running and page.is_running and not page.is_current else None
