"""Screens of terminals that are too small; those of usual sizes are in `whole/test_matrix.py`."""

from dataclasses import replace

import pytest

from pertoken.costs.report.lines import FleetReport
from tests.tui.reports import ADVICE, BARE, RICH, FixedSource
from tests.tui.screens import check_golden, running, until_gone, until_shown


@pytest.mark.parametrize("report", [RICH, BARE, replace(RICH, hosts=(), devices=(), deployments=(), hints=())])
@pytest.mark.parametrize("size", [(45, 15), (20, 6), (1, 1)])
async def test_a_tiny_terminal_breaks_nothing(report: FleetReport, size: tuple[int, int]) -> None:
    async with running(FixedSource(report, ADVICE), (100, 30)) as pilot:
        await pilot.resize_terminal(*size)
        for key in (
            "enter",
            "escape",
            "2",
            "tab",
            "enter",
            "escape",
            "1",
            "slash",
            "x",
            "escape",
            "o",
            "question_mark",
        ):
            await pilot.press(key)
        await pilot.pause()
        await pilot.resize_terminal(80, 24)
        await until_shown(pilot, "Show the fleet")


async def test_forty_columns_and_ten_lines_show_a_row_and_fewer_are_titled_too_small() -> None:
    async with running(FixedSource(), (80, 24)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Least certain")
        await pilot.resize_terminal(40, 10)
        await until_shown(pilot, "Release the")
        await check_golden(pilot, "savings-40x10")
        await pilot.resize_terminal(40, 9)
        await until_shown(pilot, "too small")
        await until_gone(pilot, "Open (3)")
