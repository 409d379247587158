"""Pages of tables: open, filter and sort rows."""

from pertoken.tui.widgets.boxes import FilterBox
from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until_gone, until_shown


async def test_a_filter_that_no_row_passes_shows_a_note_and_escape_drops_it() -> None:
    async with running(FixedSource(), (100, 30)) as pilot:
        await pilot.press("slash", *"nothing-like-it")
        await until_shown(pilot, "No row contains every word of “nothing-like-it”: esc drops the filter.")
        await pilot.press("escape")
        await until_gone(pilot, "No row contains")
        await until_shown(pilot, "70B-Instruct")


async def test_enter_opens_the_row_under_the_cursor_and_escape_goes_back_to_it() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("down", "enter")
        await until_shown(pilot, "Qwen/Qwen3-8B")
        await until_shown(pilot, "Where a dollar goes")
        await pilot.press("escape")
        await until_shown(pilot, "run/wait now  host")
        assert pilot.app.screen.query_one("#deployments", Rows).cursor_row == 1


async def test_escape_on_a_first_page_shows_why_it_does_nothing() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("escape")
        assert await notices(pilot) == ["There is nothing to go back to: 1 to 4 and h change screens, q quits."]


async def test_a_filter_keeps_rows_that_hold_all_words_and_escape_drops_it() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("slash", *"QWEN", "space", *"gpu-b", "enter")
        await until_gone(pilot, "70B-Instruct")
        await until_shown(pilot, "/QWEN gpu-b keeps 3 of 10 rows: esc drops it, / edits it.")
        assert not pilot.app.screen.query_one(FilterBox).display
        await pilot.press("slash", *"-none")
        await until_shown(pilot, "No row contains every word of “QWEN gpu-b-none”")
        await pilot.press("enter", "escape")
        await until_shown(pilot, "70B-Instruct")
        await until_gone(pilot, "keeps")
        assert not pilot.app.screen.query_one(FilterBox).in_force


async def test_reversing_an_unsorted_table_shows_the_reason() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("O")
        assert await notices(pilot) == ["Nothing is sorted yet: o sorts by the first column."]
