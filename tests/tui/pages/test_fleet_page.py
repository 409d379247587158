"""The fleet screen."""

from dataclasses import replace

import pytest

from pertoken.costs.report.lines import Trouble, TroubleKind
from tests.tui.reports import RICH, TENANTS, FixedSource
from tests.tui.screens import running, text_of, until, until_shown


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


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_an_outage_is_the_first_line_below_the_title_with_its_dollars_and_command(size: tuple[int, int]) -> None:
    stuck = Trouble(TroubleKind.STUCK, "lab on gpu-a", "no token came", "pertoken advise show eaf5fc64", 2_490_000_000)
    async with running(FixedSource(replace(RICH, troubles=(stuck,) * 9)), size) as pilot:
        await until_shown(pilot, "✗ stuck")
        first = text_of(pilot).splitlines()[1]
        for part in ("✗ stuck", "lab on gpu-a", "$2.49/hour", "pertoken advise show eaf5fc64"):
            assert part in first
        assert "…" in text_of(pilot)
        await pilot.press("shift+tab", "enter")
        await until_shown(pilot, "✗ stuck: lab on gpu-a, no token came")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (45, 15)])
@pytest.mark.parametrize("elsewhere", ["2", "3", "4", "h"])
async def test_a_dead_engine_is_found_with_one_key_from_any_page(elsewhere: str, size: tuple[int, int]) -> None:
    stuck = Trouble(TroubleKind.STUCK, "lab on gpu-a", "no token came", "pertoken advise show eaf5fc64", 2_490_000_000)
    async with running(FixedSource(replace(RICH, troubles=(stuck,))), size) as pilot:
        await until_shown(pilot, "✗ stuck")
        fleet = pilot.app.screen
        await pilot.press(elsewhere)
        await until(pilot, lambda: pilot.app.screen is not fleet, "another page")
        await pilot.press("1")
        await until(pilot, lambda: pilot.app.screen is fleet, "the fleet")
        await until_shown(pilot, "✗ stuck")
        await until_shown(pilot, "lab on gpu-a")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_bill_is_divided_by_each_basis_that_a_deployment_has_an_owner_of(size: tuple[int, int]) -> None:
    bill = replace(TENANTS, bases=("namespace", "label:team"))
    async with running(FixedSource(bill=bill), size) as pilot:
        for note in ("By host", "By tenant: whole hours", "By namespace: whole hours", "By label:team: whole hours"):
            await pilot.press("g")
            await until_shown(pilot, note)
        assert "unattributed" in text_of(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "Owner")
        await pilot.press("escape", "g")
        await until(pilot, lambda: "By label" not in text_of(pilot), "services again")
