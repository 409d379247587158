"""Input line for a time."""

from tests.tui.reports import NOW, FixedSource
from tests.tui.screens import notices, running, text_of, until_gone, until_shown


async def test_a_typed_time_is_shown() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("t")
        await until_shown(pilot, "A time to show")
        await pilot.press(*"90m", "enter")
        await until_shown(pilot, "last 1h to 2027-01-15 06:30Z · REPLAY")
        assert source.moments[-1] == NOW - 5400
        await pilot.press("down", "enter")
        await until_shown(pilot, "Service")


async def test_a_time_that_cannot_be_shown_gives_the_reason_and_esc_closes_the_line() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("t", *"noon", "enter")
        assert "is not a time" in (await notices(pilot))[0]
        await pilot.press("t")
        await until_shown(pilot, "A time to show")
        await pilot.press("escape")
        await until_gone(pilot, "A time to show")
        assert "live" in text_of(pilot)
