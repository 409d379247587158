"""Input line for a filter."""

from textual import events

from pertoken.tui.widgets.boxes import FilterBox
from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until, until_shown


async def test_keys_typed_into_a_filter_are_text() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("slash", "q", "2", "question_mark", "left_square_bracket", "p")
        assert pilot.app.screen.query_one(FilterBox).value == "q2?[p"
        assert await notices(pilot) == []


async def test_text_that_arrives_together_with_the_key_that_opens_the_line_is_text() -> None:
    async with running(FixedSource()) as pilot:
        app = pilot.app
        await until_shown(pilot, "run/wait")
        for char in "/q2?[pZ":  # as a slow connection delivers them
            app.post_message(events.Key("slash" if char == "/" else char, char))
        await until(pilot, lambda: app.screen.query_one(FilterBox).value == "q2?[pZ", "the text")
        assert app.is_running


async def test_rows_are_filtered_with_the_text_and_not_a_frame_later() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("slash")
        screen = pilot.app.screen
        box, rows = screen.query_one(FilterBox), screen.query_one("#deployments", Rows)
        before = len(rows.matched)
        box.value = "no row has this"  # no message is handled until the next await
        assert (before > 0, len(rows.matched)) == (True, 0)
