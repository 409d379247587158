"""Pages of facts: they are updated by readings, and scroll."""

from dataclasses import replace

from tests.tui.reports import CHAT, RICH, FixedSource
from tests.tui.screens import notices, running, until_gone, until_shown


async def test_details_follow_the_database_and_show_when_their_row_is_gone() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "87%")
        source.report = replace(RICH, deployments=(replace(CHAT, busy=0.21),))
        await until_shown(pilot, "21%")
        source.report = replace(RICH, deployments=())
        await until_shown(pilot, "It no longer exists: esc goes back.")


async def test_the_details_of_a_row_scroll_by_the_keys_of_a_page_and_of_a_line() -> None:
    async with running(FixedSource(), (80, 14)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Open (3)")
        await pilot.press("enter")
        await until_shown(pilot, "last evaluated")
        await pilot.press("pagedown")
        await until_gone(pilot, "last evaluated")
        await pilot.press("home")
        await until_shown(pilot, "last evaluated")
        await pilot.press(*["down"] * 8)
        await until_gone(pilot, "last evaluated")


async def test_a_page_of_facts_shows_why_it_cannot_be_filtered() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("enter", "slash")
        assert await notices(pilot) == ["This page has no rows: esc goes back to the list."]
