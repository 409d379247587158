"""The fleet screen."""

from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_shown


async def test_names_are_shown_as_text_without_effect() -> None:
    async with running(FixedSource(), (160, 40)) as pilot:
        await until_shown(pilot, "[/b]evil\\x1b[31m\\u202emodel[red]")
        assert "\x1b" not in text_of(pilot)
        assert "\u202e" not in text_of(pilot)


async def test_devices_of_several_hosts_in_one_slot_stay_apart_on_a_small_screen() -> None:
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "HBM3 #2")
        lines = [line.split() for line in text_of(pilot).splitlines() if "HBM3 #" in line]
        assert len(lines) == len({(*line[:5], "gpu-a" in line) for line in lines}) == 5


async def test_tab_goes_to_the_next_table_and_its_rows_open() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("tab", "down", "down", "enter")
        await until_shown(pilot, "/dev/nvidia0 may not be read. Add the agent to group video.")


async def test_hints_and_events_open_in_full() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("shift+tab", "enter")
        await until_shown(pilot, "What happened, newest first")
        await until_shown(pilot, "agent 0.1.0 started on gpu-b")
