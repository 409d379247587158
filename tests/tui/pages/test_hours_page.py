"""The hours screen."""

from tests.tui.reports import FixedSource
from tests.tui.screens import running, until, until_gone, until_shown


async def test_hours_are_read_only_while_their_page_is_open() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        asked = len(source.windows)
        await until(pilot, lambda: len(source.windows) > asked + 1, "more readings")
        assert source.hours_asked == 0
        await pilot.press("h")
        await until_shown(pilot, "by hour")
        source.day = source.day[:1]
        await until_gone(pilot, "no-price")
        await pilot.press("1")
        await until_shown(pilot, "run/wait")
