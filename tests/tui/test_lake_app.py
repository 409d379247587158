from textual.widgets import DataTable, Static, TabbedContent

from pertoken.errors import StoreError
from pertoken.lake.questions import Coverage
from pertoken.text.lake import LakeTable
from pertoken.tui.lake_app import Answers, LakeApp

TABLES = (
    LakeTable("Dollars by model", [{"model": "[bold]a", "nano_usd": 10**9}], "A note."),
    LakeTable("Dollars by cell, and what of them was idle", []),
)


def answers() -> Answers:
    return TABLES, Coverage(("eu-1",), 2, 1_789_956_000, ())


async def test_each_answer_is_a_tab_and_keys_go_round() -> None:
    app = LakeApp("lake:/x", answers)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        tabs = app.query_one(TabbedContent)
        assert tabs.tab_count == 2 and "1 cell, 2 published days" in str(app.query_one("#head", Static).render())
        table = app.query_one(DataTable)
        assert table.get_row_at(0) == ["[bold]a", "$1.00"]
        await pilot.press("right")
        assert tabs.active == "answer-1"
        await pilot.press("right")
        assert tabs.active == "answer-0"
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert tabs.active == "answer-0" and tabs.tab_count == 2


async def test_an_error_is_shown_and_the_screens_stay() -> None:
    def fails() -> Answers:
        raise StoreError("lake:/x: cannot be listed")

    app = LakeApp("lake:/x", fails)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "cannot be listed" in str(app.query_one("#head", Static).render())
