"""The key `:` opens anything that has a name, from any page."""

from pertoken.config import Settings
from pertoken.tui.options import options_of
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until_gone, until_shown

OPTIONS = options_of(Settings(screens_remember=False))


NAMES = (
    ("gpu-b", "gpu-b · 3 accelerators"),
    ("qwen", "Qwen/Qwen3-8B · llama.cpp on gpu-b"),
    ("rule use-spot", "Buy spot capacity"),
    ("agent.interval", "What it means"),
    ("hours", "$/Mtok by hour"),
    ("screen savings", "bankable $/month"),
    ("gpu-a", "gpu-a · 2 accelerators"),
)


async def test_a_name_is_gone_to_from_any_page() -> None:
    async with running(FixedSource(), (100, 30), options=OPTIONS) as pilot:
        for typed, shown in NAMES:
            await pilot.press("colon", *typed)
            await until_shown(pilot, "▸")
            await pilot.press("enter")
            await until_shown(pilot, shown)


async def test_tab_completes_and_arrows_mark_another_name() -> None:
    async with running(FixedSource(), (100, 30), options=OPTIONS) as pilot:
        await pilot.press("colon", *"gpu", "down", "tab")
        await until_shown(pilot, "▸ host gpu-b")
        await pilot.press("enter")
        await until_shown(pilot, "gpu-b · 3 accelerators")


async def test_an_unknown_name_shows_the_most_similar_and_can_be_corrected() -> None:
    async with running(FixedSource(), (100, 30), options=OPTIONS) as pilot:
        await pilot.press("colon", *"gpu-bb", "enter")
        expected = "No screen, host, service, rule or setting has the name “gpu-bb”; the most similar is host gpu-b."
        assert await notices(pilot) == [expected]
        await pilot.press("backspace", "enter")
        await until_shown(pilot, "gpu-b · 3 accelerators")


async def test_escape_closes_it_and_the_rows_have_the_keys_again() -> None:
    async with running(FixedSource(), (100, 30), options=OPTIONS) as pilot:
        await pilot.press("colon", *"gpu")
        await until_shown(pilot, "▸ host gpu-a")
        await pilot.press("escape")
        await until_gone(pilot, "▸")
        await pilot.press("enter")
        await until_shown(pilot, "Where a dollar goes")
