"""The palette matches keys by synonyms, and shows why a key does nothing now."""

from textual.command import CommandPalette

from tests.tui.reports import FixedSource
from tests.tui.screens import running, until, until_shown

WORDS = (
    ("theme", "Change the settings"),
    ("colour", "Change the settings"),
    ("price", "Set a price"),
    ("exit", "Quit"),
    ("shortcuts", "Show the keys"),
)


async def test_it_finds_a_command_by_a_synonym() -> None:
    async with running(FixedSource()) as pilot:
        for typed, command in WORDS:
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette), "the palette")
            await pilot.press(*typed)
            await until_shown(pilot, command)
            await pilot.press("escape")


async def test_a_command_that_does_nothing_now_shows_the_reason() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette), "the palette")
        await pilot.press(*"accept the")
        await until_shown(pilot, "Not now: This key is for a recommendation")
