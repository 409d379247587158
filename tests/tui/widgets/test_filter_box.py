"""Input line for a filter."""

from pertoken.tui.widgets.filter_box import FilterBox
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running


async def test_keys_typed_into_a_filter_are_text() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("slash", "q", "2", "question_mark", "left_square_bracket", "p")
        assert pilot.app.screen.query_one(FilterBox).value == "q2?[p"
        assert await notices(pilot) == []
