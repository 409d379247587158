"""Every key of the table has the effect that the table describes."""

from collections import Counter

from textual.command import CommandPalette

from pertoken.text.keys import KEYS
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until, until_shown


def test_no_key_has_two_meanings() -> None:
    assert max(Counter(key.key for key in KEYS).values()) == 1
    assert max(Counter(key.command for key in KEYS).values()) == 1


async def test_the_help_page_lists_every_key() -> None:
    async with running(FixedSource(), (140, 80)) as pilot:
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
        await until_shown(pilot, "How much a month")
        await pilot.press("1")
        await until_shown(pilot, "run/wait")
        await pilot.press("2")
        await until_shown(pilot, "bankable $/month")


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


async def test_g_groups_by_service_host_and_tenant() -> None:
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "run/wait")
        await pilot.press("g")
        await until_shown(pilot, "By host. g: by tenant, then by model.")
        await pilot.press("g")
        await until_shown(pilot, "unattributed")
        await pilot.press("g")
        await until_shown(pilot, "run/wait")
