"""Whole screens as text, at the sizes people have."""

from dataclasses import replace

import pytest

from pertoken.costs.report.lines import FleetReport
from pertoken.proof.recommendation import Recommendation
from tests.tui.reports import ADVICE, BARE, CHAT, RICH, SILENT_ADVICE, FixedSource, host, locked, use
from tests.tui.screens import check_golden, running, until_gone, until_shown
from tests.tui.studies import PLAN

SIZES = [(80, 24), (120, 40)]
SCREENS = [
    ("fleet", (), "model"),
    ("deployment", ("enter",), "Tokens, tok/s"),
    ("hosts", ("g",), "By host"),
    ("tenants", ("g", "g"), "unattributed"),
    ("replay", ("less_than_sign",), "REPLAY"),
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


async def test_a_host_opens_with_its_dollars_and_plots() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        for key in ("tab", "tab", "enter"):
            await pilot.press(key)
            await pilot.pause()
        await until_shown(pilot, "Tokens, tok/s")
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
        await pilot.press("1", "enter")
        await until_shown(pilot, "Where a dollar goes")
        await until_shown(pilot, "Tokens, tok/s")
        await check_golden(pilot, "deployment-45x15")


MANY = tuple(host(n, f"gpu-{n:04}", age_s=4 if n % 97 else 75) for n in range(1, 1001))


@pytest.mark.parametrize("size", [*SIZES, (45, 15)])
async def test_a_thousand_hosts_open_on_hosts(size: tuple[int, int]) -> None:
    uses = tuple(replace(use(each, (CHAT.model,), 8), util=each.host_id % 101 / 100) for each in MANY)
    async with running(FixedSource(replace(RICH, hosts=MANY, uses=uses, hints=())), size) as pilot:
        await until_shown(pilot, "gpu-0001")
        await check_golden(pilot, f"thousand-hosts-{size[0]}x{size[1]}")


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


SMALL = (45, 15)
STUDIES = [
    ("plan", ("3",), "Least certain"),
    ("plan-what-if", ("w",), "An empty line"),
    ("plan-without-a-step", ("escape", "down", "space"), "[ ]"),
    ("plan-step", ("up", "enter"), "bankable"),
    ("rules", ("4",), "use-spot"),
    ("rule", ("enter",), "track record"),
]
"""Screens of what takes seconds to compute, each with the keys that lead there from the one before."""


@pytest.mark.parametrize("size", [*SIZES, SMALL])
async def test_plan_and_rules_look_as_recorded(size: tuple[int, int]) -> None:
    async with running(FixedSource(), size) as pilot:
        for name, keys, text in STUDIES:
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            await until_shown(pilot, text if size != SMALL else text.split()[0][:3])
            await check_golden(pilot, f"{name}-{size[0]}x{size[1]}")


@pytest.mark.parametrize("size", [*SIZES, SMALL])
async def test_an_empty_plan_and_one_that_cannot_be_read_again_look_as_recorded(size: tuple[int, int]) -> None:
    nothing = replace(PLAN, steps=(), left_out=(), bankable=(0, 0, 0), capacity=(0, 0, 0), sensitivity=())
    source = FixedSource(BARE, (), planned=nothing)
    async with running(source, size) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "none found")
        await check_golden(pilot, f"plan-empty-{size[0]}x{size[1]}")
        source.error = locked
        await pilot.press("r")
        await until_shown(pilot, "These figures are from")
        await check_golden(pilot, f"plan-stale-{size[0]}x{size[1]}")


@pytest.mark.parametrize("size", [*SIZES, SMALL])
async def test_plan_and_rules_that_never_came_say_why(size: tuple[int, int]) -> None:
    source = FixedSource(BARE)
    async with running(source, size) as pilot:
        source.error = locked
        await pilot.press("4")
        await until_shown(pilot, "Nothing could be read yet")
        await check_golden(pilot, f"rules-error-{size[0]}x{size[1]}")


async def test_forty_columns_and_ten_lines_show_a_row_and_less_says_too_small() -> None:
    async with running(FixedSource(), (80, 24)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Least certain")
        await pilot.resize_terminal(40, 10)
        await until_shown(pilot, "Release the")
        await check_golden(pilot, "savings-40x10")
        await pilot.resize_terminal(40, 9)
        await until_shown(pilot, "too small")
        await until_gone(pilot, "Open (4)")
