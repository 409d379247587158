"""Every key of the table does what the table says."""

from collections import Counter
from dataclasses import replace

from textual.command import CommandPalette

from pertoken.tui.keys import KEYS
from pertoken.tui.widgets.filter_box import FilterBox
from pertoken.tui.widgets.rows import Rows
from tests.tui.reports import NOW, RICH, FixedSource
from tests.tui.screens import notices, running, text_of, until, until_gone, until_shown


def test_no_key_has_two_meanings() -> None:
    assert max(Counter(key.key for key in KEYS).values()) == 1
    assert max(Counter(key.command for key in KEYS).values()) == 1


async def test_the_help_page_lists_every_key() -> None:
    async with running(FixedSource(), (120, 60)) as pilot:
        await pilot.press("question_mark")
        await until_shown(pilot, "Show the fleet")
        shown = " ".join(text_of(pilot).split())
        for key in KEYS:
            assert f"{key.shown} {key.command}. {key.help}" in shown


async def test_one_and_two_change_screens_and_leave_details() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Serve FP8")
        await pilot.press("enter")
        await until_shown(pilot, "Worth, per month")
        await pilot.press("1")
        await until_shown(pilot, "run/wait")
        await pilot.press("2")
        await until_shown(pilot, "bankable $/month")


async def test_enter_opens_the_row_under_the_cursor_and_escape_goes_back_to_it() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("down", "enter")
        await until_shown(pilot, "Qwen/Qwen3-8B")
        await until_shown(pilot, "What it costs")
        await pilot.press("escape")
        await until_shown(pilot, "run/wait  host")
        assert pilot.app.screen.query_one("#deployments", Rows).cursor_row == 1


async def test_escape_at_the_top_says_why_it_does_nothing() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("escape")
        assert await notices(pilot) == ["There is nothing to go back to: 1, 2 and h change screens, q quits."]


async def test_tab_goes_to_the_next_table_and_its_rows_open() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("tab", "down", "down", "enter")
        await until_shown(pilot, "/dev/nvidia0 may not be read. Add the agent to group video.")


async def test_hints_and_events_open_in_full() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("shift+tab", "enter")
        await until_shown(pilot, "What happened, newest first")
        await until_shown(pilot, "agent 0.1.0 started on gpu-b")


async def test_a_filter_keeps_rows_that_hold_all_words_and_escape_drops_it() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("slash", *"QWEN", "space", *"gpu-b", "enter")
        await until_gone(pilot, "70B-Instruct")
        await until_shown(pilot, "Qwen/Qwen3-8B")
        assert pilot.app.screen.query_one(FilterBox).display
        await pilot.press("escape")
        await until_shown(pilot, "70B-Instruct")
        assert not pilot.app.screen.query_one(FilterBox).display


async def test_keys_typed_into_a_filter_are_text() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("slash", "q", "2", "question_mark", "left_square_bracket", "p")
        assert pilot.app.screen.query_one(FilterBox).value == "q2?[p"
        assert await notices(pilot) == []


async def test_sorting_steps_through_the_columns_turns_around_and_keeps_unknown_last() -> None:
    async with running(FixedSource()) as pilot:
        table = pilot.app.screen.query_one("#deployments", Rows)

        def order() -> list[int]:
            return [line.deployment_id for line in table.matched]

        assert order() == [11, 12, 13]
        await pilot.press("o", "o", "o")
        await until_shown(pilot, "$/Mtok▼")
        assert order() == [12, 11, 13]
        await pilot.press("O")
        await until_shown(pilot, "$/Mtok▲")
        assert order() == [11, 12, 13]


async def test_turning_around_what_is_not_sorted_says_why_not() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("O")
        assert await notices(pilot) == ["Nothing is sorted yet: o sorts by the first column."]


async def test_brackets_change_the_window_between_its_ends() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("left_square_bracket")
        await until_shown(pilot, " in 15m")
        await pilot.press("left_square_bracket")
        assert await notices(pilot) == ["15m is the shortest window."]
        for window in ("1h", "6h", "24h", "7d"):
            await pilot.press("right_square_bracket")
            await until_shown(pilot, " in " + {"24h": "1d"}.get(window, window))
        await pilot.press("right_square_bracket")
        assert (await notices(pilot))[-1] == "7d is the longest window."
        assert source.windows == [3600, 900, 3600, 21_600, 86_400, 604_800]


async def test_savings_have_no_window_and_say_so() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("2", "right_square_bracket")
        assert await notices(pilot) == ["The window belongs to the fleet: press 1 first."]


async def test_pause_freezes_the_figures_until_pressed_again() -> None:
    source, asked = FixedSource(), list[float]()

    def now() -> float:
        asked.append(NOW)
        return NOW

    async with running(source, refresh_s=0.05, now=now) as pilot:
        await until_shown(pilot, "70B-Instruct")
        await pilot.press("p")
        await until_shown(pilot, "PAUSED")
        await pilot.press("right_square_bracket")
        assert await notices(pilot) == ["The figures are frozen: press p to go on, then change the window."]
        source.report = replace(RICH, deployments=(), devices=())
        ticks = len(asked)
        await until(pilot, lambda: len(asked) > ticks + 10, "ten more ticks")
        assert "70B-Instruct" in text_of(pilot)
        await pilot.press("p")
        await until_gone(pilot, "70B-Instruct")


async def test_the_palette_finds_a_command_by_the_words_of_a_user() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette), "the palette")
        await pilot.press(*"show savings")
        await until_shown(pilot, "What could be cheaper")
        await pilot.press("enter")
        await until_shown(pilot, "bankable $/month")


async def test_q_quits() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running, "the end")


async def test_a_page_of_facts_says_why_it_cannot_be_filtered() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("enter", "slash")
        assert await notices(pilot) == ["This page shows one thing: esc goes back to the list."]
