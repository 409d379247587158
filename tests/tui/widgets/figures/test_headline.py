"""Main figures: large digits if the screen has space, else a paragraph."""

from pertoken.tui.widgets.figures import LargeFigures
from tests.tui.reports import FixedSource
from tests.tui.screens import running, until_shown


async def test_figures_are_large_on_a_large_screen_and_a_paragraph_on_a_small_one() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await until_shown(pilot, "$/hour, 1 unpriced")
        shown = pilot.app.screen.query_one(LargeFigures).figures
        assert [figure.value for figure in shown] == ["$0.412", "$9.96", "853", "51%"]
    async with running(FixedSource(), (70, 24)) as pilot:
        await until_shown(pilot, "$0.412/Mtok (86% of 1h) · $9.96/hour · 853 tok/s · 51% idle or")
