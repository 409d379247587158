from pertoken.tui.options import Options
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_shown


async def test_expired_advice_is_not_shown() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Open (3)")
        assert "Expired and not" not in text_of(pilot)
        await pilot.press("tab")
        await until_shown(pilot, "use-spot")
        assert "Expired and not" not in text_of(pilot)


async def test_rows_without_a_figure_or_with_a_late_payback_are_in_a_tab_of_their_own() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Folded (1)")
        await until_shown(pilot, "Folded, in a tab: 1 without a figure.")
    async with running(FixedSource(), (120, 40), options=Options(hour_rate=1e6)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Folded (4)")
        await until_shown(pilot, "Folded (3 pay back in over a year, 1 without a figure)")
