"""Notices, hidden while there are none."""

from dataclasses import replace

from pertoken.tui.widgets.notices import Notices
from tests.tui.reports import RICH, FixedSource
from tests.tui.screens import running, until, until_shown


async def test_hints_take_no_lines_once_there_are_none() -> None:
    source = FixedSource()
    async with running(source, (120, 40), refresh_s=0.05) as pilot:
        await until_shown(pilot, "→ ")
        hints = pilot.app.screen.query_one("#hints", Notices)
        assert hints.size.height > 0
        source.report = replace(RICH, hints=())
        await until(pilot, lambda: hints.size.height == 0, "room for the rest")
