"""Page that hides and shows columns."""

from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, text_of, until_gone, until_shown


async def test_a_column_is_hidden_and_comes_back() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await until_shown(pilot, "busy  run/wait")
        await pilot.press("c")
        await until_shown(pilot, "[x]  busy")
        for _ in range(5):
            await pilot.press("down")
        await pilot.press("space")
        await until_shown(pilot, "[ ]  busy")
        await pilot.press("escape")
        await until_gone(pilot, "busy  run/wait")
        await pilot.press("c", "enter", "escape")
        await until_shown(pilot, "run/wait")


async def test_the_column_that_names_the_rows_stays() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("c")
        await until_shown(pilot, "[x]  model")
        await pilot.press("space")
        assert await notices(pilot) == ["This column names the rows: it is always shown."]
        await pilot.press("c")
        assert (await notices(pilot))[-1] == "These are the columns: esc goes back."


async def test_a_filter_finds_what_a_hidden_column_holds() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await until_shown(pilot, "host")
        pilot.app.screen.query_one("#deployments", Rows).toggle("host")
        await pilot.press("slash", *"gpu-b", "enter")
        await until_gone(pilot, "70B-Instruct  ")
        assert "Qwen/Qwen3-8B" in text_of(pilot)
