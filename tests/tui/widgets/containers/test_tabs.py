"""Tabs of the savings page."""

from textual.geometry import Region

from pertoken.tui.pages.savings_page import Pane, Tabs
from tests.tui.reports import FixedSource
from tests.tui.screens import running


async def test_tabs_and_panes_are_one_strip_and_are_found_as_textual_names_them() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await pilot.press("2")
        screen = pilot.app.screen
        assert screen.query_one("TabbedContent") is screen.query_one(Tabs)
        for container in (screen.query_one(Tabs), screen.query(Pane).first()):
            lines = container.render_lines(Region(0, 0, 9, 3))
            assert [line.text for line in lines] == [" " * 9] * 3
