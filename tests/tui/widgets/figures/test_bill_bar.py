"""The bill of the window as a sentence and a bar."""

from dataclasses import replace

from pertoken.tui.widgets.figures import Bar
from tests.tui.reports import RICH, FixedSource
from tests.tui.screens import running, until_shown


async def test_the_bar_shows_the_parts_of_the_bill_over_its_whole_width() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await until_shown(pilot, "Paid $9.96")
        bar = pilot.app.screen.query_one(Bar)
        text = bar.render().plain
        assert len(text) == bar.size.width > 0
        assert text == "".join(sorted(text, key="█▓▒░".index)) and set(text) == set("█▓▒░")


async def test_without_a_bill_there_is_no_bar() -> None:
    source = FixedSource(replace(RICH, bill=None))
    async with running(source, (120, 40)) as pilot:
        assert pilot.app.screen.query_one(Bar).has_class("-empty")
