"""The settings screen: choices that are remembered, and all settings, read-only."""

from pathlib import Path

from pertoken.config import Settings
from pertoken.tui.options import Options, options_of, recall
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until, until_shown


async def test_a_choice_takes_its_next_value_at_once_and_is_remembered(tmp_path: Path) -> None:
    options = Options(memory=tmp_path / "screens.json")
    async with running(FixedSource(), options=options) as pilot:
        await pilot.press("s")
        await until_shown(pilot, "theme       dark")
        await pilot.press("enter")
        await until_shown(pilot, "theme       light")
        assert pilot.app.theme == "light"
        await pilot.press("down", "space")
        await until_shown(pilot, "borders     ascii")
        await pilot.press("down", "space", "down", "space")
        await until_shown(pilot, "window      6h")
    remembered = recall(options.memory)
    assert (remembered.theme, remembered.borders, remembered.refresh_s, remembered.window_s) == (
        "light",
        "ascii",
        1.0,
        21_600,
    )


async def test_a_read_only_choice_shows_where_it_is_changed() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("s")
        await until_shown(pilot, "currency")
        await pilot.press("down", "down", "down", "down", "enter")
        assert await notices(pilot) == ["It cannot be changed here: set currency.code in the settings file."]


async def test_all_settings_are_shown_read_only() -> None:
    options = options_of(Settings(screens_remember=False, screens_theme="light"))
    async with running(FixedSource(), (120, 40), options=options) as pilot:
        assert pilot.app.theme == "light"
        await pilot.press("s", "tab")
        await until_shown(pilot, "agent.interval")
        await pilot.press("space")
        assert (await notices(pilot))[-1].startswith("A setting is changed in the settings file")
        await pilot.press("enter")
        await until_shown(pilot, "What it means")


async def test_another_refresh_time_applies_at_once() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("s")
        await until_shown(pilot, "refresh")
        before = len(source.windows)
        await pilot.press("down", "down", "enter")
        await until_shown(pilot, "refresh     1s")
        await until(pilot, lambda: len(source.windows) > before, "another reading")
