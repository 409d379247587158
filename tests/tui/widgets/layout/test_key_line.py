"""Keys in the last line: what they do when they are clicked, and while an input line is open."""

from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until, until_gone, until_shown


async def test_a_click_on_a_key_does_what_the_key_does() -> None:
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "run/wait")
        await pilot.click("KeyLine", (4, 0))
        await until_shown(pilot, "bankable $/month")


async def test_an_input_line_has_its_own_keys() -> None:
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "run/wait")
        await pilot.press("slash")
        keys = "enter Keep filter esc Drop filter"
        await until(pilot, lambda: text_of(pilot).splitlines()[-1] == keys, "keys of the filter")
        await pilot.press("escape")
        await until_gone(pilot, "Keep filter")
        await pilot.press("colon")
        await until(pilot, lambda: text_of(pilot).splitlines()[-1] == "enter OK esc Close", "keys of the input line")
        await pilot.press("escape")
        await until_gone(pilot, "enter OK")
        await until_shown(pilot, "2 Savings")


async def test_help_and_quit_are_shown_at_45_columns() -> None:
    async with running(FixedSource(), (45, 15)) as pilot:
        await until_shown(pilot, "? Keys q Quit")
