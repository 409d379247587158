"""Whole screens as text, at the sizes people have."""

from dataclasses import replace

import pytest

from pertoken.advisor.recommendation import Recommendation
from pertoken.costs.report.lines import FleetReport
from tests.tui.reports import ADVICE, BARE, RICH, SILENT_ADVICE, FixedSource, locked
from tests.tui.screens import check_golden, running, until_shown

SIZES = [(80, 24), (120, 40)]
SCREENS = [
    ("fleet", (), "model"),
    ("deployment", ("enter",), "What it costs"),
    ("device", ("tab", "down", "down", "enter"), "/dev/nvidia0"),
    ("measured-device", ("tab", "enter"), "NVLink"),
    ("savings", ("2",), "Serve FP8"),
    ("not-evaluated", ("2", "tab"), "use-spot"),
    ("advice", ("2", "down", "enter"), "Why"),
    ("hours", ("h",), "by hour"),
    ("model-hours", ("h", "enter"), "nothing recorded"),
    ("keys", ("question_mark",), "Show the fleet"),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "keys", "text"), SCREENS)
async def test_a_rich_fleet_looks_as_recorded(
    size: tuple[int, int], name: str, keys: tuple[str, ...], text: str
) -> None:
    async with running(FixedSource(), size) as pilot:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await until_shown(pilot, text)
        await check_golden(pilot, f"{name}-{size[0]}x{size[1]}")


async def test_a_host_tells_what_its_memory_moves() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        for key in ("tab", "tab", "enter"):
            await pilot.press(key)
            await pilot.pause()
        await until_shown(pilot, "memory traffic")
        await check_golden(pilot, "host-120x40")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "report", "advice", "keys", "text"),
    [
        ("bare-fleet", BARE, (), (), "No inference server"),
        ("bare-savings", BARE, (), ("2",), "No rule has run yet"),
        ("silent-savings", RICH, SILENT_ADVICE, ("2",), "Nothing to propose"),
    ],
)
async def test_a_screen_with_nothing_on_it_says_what_to_do(
    size: tuple[int, int],
    name: str,
    report: FleetReport,
    advice: tuple[Recommendation, ...],
    keys: tuple[str, ...],
    text: str,
) -> None:
    async with running(FixedSource(report, advice), size) as pilot:
        await pilot.press(*keys)
        await until_shown(pilot, text)
        await check_golden(pilot, f"{name}-{size[0]}x{size[1]}")


async def test_a_database_that_never_answered_is_said_in_full() -> None:
    async with running(FixedSource(error=locked)) as pilot:
        await until_shown(pilot, "Nothing could be read yet")
        await check_golden(pilot, "failing-80x24")


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


async def test_the_smallest_useful_terminal_still_shows_prices_and_how_much_was_observed() -> None:
    async with running(FixedSource(), (45, 15)) as pilot:
        await until_shown(pilot, "$8.11*")
        await check_golden(pilot, "fleet-45x15")
        await pilot.press("h")
        await until_shown(pilot, "Seen")
        await check_golden(pilot, "hours-45x15")


@pytest.mark.parametrize("size", [*SIZES, (45, 15)])
async def test_a_fleet_of_which_no_host_reports_has_no_now(size: tuple[int, int]) -> None:
    hosts = tuple(replace(each, age_s=2300) for each in RICH.hosts)
    lines = tuple(replace(each, age_s=2300, coverage=0.36) for each in RICH.deployments)
    figures = replace(RICH, generated_tok_s_now=None, power_w=None, nano_usd_per_hour=None, unpriced_n=0)
    silent = replace(figures, hosts=hosts, deployments=lines, bill_observed=0.36, coverage=0.36, estimated=True)
    async with running(FixedSource(silent), size) as pilot:
        await until_shown(pilot, "no data")
        await until_shown(pilot, "36% observed")
        await check_golden(pilot, f"silent-fleet-{size[0]}x{size[1]}")
