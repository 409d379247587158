from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_shown


async def test_expired_advice_is_not_shown() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Open (4)")
        assert "Expired and not" not in text_of(pilot)
        await pilot.press("tab")
        await until_shown(pilot, "use-spot")
        assert "Expired and not" not in text_of(pilot)
