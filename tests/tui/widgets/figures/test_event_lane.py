"""Timeline of a replay."""

from tests.tui.reports import NOW, FixedSource
from tests.tui.screens import running, text_of, until_gone, until_shown


async def test_the_timeline_is_shown_only_with_the_past() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        assert "●" not in text_of(pilot)
        await pilot.press("less_than_sign")
        await until_shown(pilot, "07:56Z  http://127.0.0.1:8001/metrics answered 404")
        assert "●" in text_of(pilot)
        await until_shown(pilot, "last 1h to 2027-01-15 07:57Z · REPLAY")
        assert source.moments[-1] == NOW - 180
        await pilot.press("n")
        await until_gone(pilot, "●")
