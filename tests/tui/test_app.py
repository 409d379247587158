"""The app lives on whatever its database does."""

import sys
from dataclasses import replace
from subprocess import run
from threading import Event

from rich.style import Style
from rich.text import Text

from pertoken.costs.report.lines import DeviceLine, Lines
from pertoken.tui.widgets.rows import PAGE, Rows
from tests.tui.reports import CHAT, NOW, RICH, FixedSource, device, host, locked
from tests.tui.screens import running, text_of, until, until_gone, until_shown


async def test_figures_follow_the_database() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        source.report = replace(RICH, deployments=(replace(CHAT, model="a-new-model"),))
        await until_shown(pilot, "a-new-model")
        await until_gone(pilot, "70B-Instruct          ")


async def test_details_follow_the_database_and_say_when_their_row_is_gone() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "87%")
        source.report = replace(RICH, deployments=(replace(CHAT, busy=0.21),))
        await until_shown(pilot, "21%")
        source.report = replace(RICH, deployments=())
        await until_shown(pilot, "It is no longer there: esc goes back.")


async def test_the_details_of_a_row_scroll_by_the_keys_of_a_page_and_of_a_line() -> None:
    async with running(FixedSource(), (80, 14)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Open (4)")
        await pilot.press("enter")
        await until_shown(pilot, "last evaluated")
        await pilot.press("pagedown")
        await until_gone(pilot, "last evaluated")
        await pilot.press("home")
        await until_shown(pilot, "last evaluated")
        await pilot.press(*["down"] * 8)
        await until_gone(pilot, "last evaluated")


async def test_a_failing_database_keeps_the_last_figures_under_a_banner_with_their_age() -> None:
    source, clock = FixedSource(), [float(NOW)]
    async with running(source, refresh_s=0.05, now=lambda: clock[0]) as pilot:
        await until_shown(pilot, "70B-Instruct")
        source.error = locked
        clock[0] += 240
        await until_shown(pilot, "These figures are from 4m ago: /var/lib/pertoken/telemetry.db: locked")
        assert "70B-Instruct" in text_of(pilot)
        source.error = None
        await until_gone(pilot, "These figures are from")


async def test_a_notice_stands_above_every_page_until_it_is_no_longer_true() -> None:
    notices: list[str | None] = ["The agent \x1bended."]
    async with running(FixedSource(), refresh_s=0.05, notice=lambda: notices[0]) as pilot:
        await until_shown(pilot, "The agent \\x1bended.")
        await pilot.press("2")
        await until_shown(pilot, "The agent \\x1bended.")
        notices[0] = None
        await until_gone(pilot, "The agent")


async def test_what_no_host_reports_to_any_more_is_not_live() -> None:
    source, clock = FixedSource(), [float(NOW)]
    async with running(source, refresh_s=0.05, now=lambda: clock[0]) as pilot:
        await until_shown(pilot, "· live ·")
        clock[0] += 300
        await until_shown(pilot, "· no data for 5m ·")
        await pilot.press("h")
        await until_shown(pilot, "Hours · no data for 5m ·")
        source.report = replace(RICH, hosts=(host(1, "gpu-a", age_s=-296), host(2, "gpu-b", age_s=900)))
        await until_shown(pilot, "· live ·")


async def test_an_error_nobody_foresaw_is_shown_and_not_fatal() -> None:
    async with running(FixedSource(error=lambda: ZeroDivisionError("[b]oops"))) as pilot:
        await until_shown(pilot, "unexpected ZeroDivisionError: [b]oops")


async def test_keys_work_while_the_database_does_not_answer() -> None:
    gate = Event()
    try:
        async with running(FixedSource(wait=gate)) as pilot:
            await until_shown(pilot, "Reading the database")
            await pilot.press("question_mark")
            await until_shown(pilot, "Show the fleet")
            await pilot.press("escape")
            await until_shown(pilot, "Reading the database")
            gate.set()
            await until_shown(pilot, "70B-Instruct")
    finally:
        gate.set()


async def test_the_title_says_since_when_nothing_was_answered() -> None:
    gate, clock = Event(), [float(NOW)]
    gate.set()
    source = FixedSource(wait=gate)
    try:
        async with running(source, refresh_s=0.05, now=lambda: clock[0]) as pilot:
            await until_shown(pilot, "live")
            gate.clear()
            await until(pilot, lambda: pilot.app._waiting, "a reading under way")  # type: ignore[attr-defined]
            clock[0] += 75
            await until_shown(pilot, "no answer for 75s")
    finally:
        gate.set()


async def test_quitting_does_not_wait_for_the_database() -> None:
    gate = Event()
    try:
        async with running(FixedSource(wait=gate)) as pilot:
            await pilot.press("q")
            await until(pilot, lambda: not pilot.app.is_running, "the end")
    finally:
        gate.set()


async def test_a_window_chosen_while_reading_is_read_next() -> None:
    gate = Event()
    source = FixedSource(wait=gate)
    try:
        async with running(source) as pilot:
            await until_shown(pilot, "Reading the database")
            await pilot.press("right_square_bracket")
            gate.set()
            await until_shown(pilot, " in 6h, 97% observed")
    finally:
        gate.set()


async def test_names_are_shown_as_they_are_and_never_act() -> None:
    async with running(FixedSource(), (160, 40)) as pilot:
        await until_shown(pilot, "[/b]evil\\x1b[31m\\u202emodel[red]")
        assert "\x1b" not in text_of(pilot)
        assert "\u202e" not in text_of(pilot)


async def test_stale_rows_are_dimmed_and_carry_their_age() -> None:
    async with running(FixedSource()) as pilot:
        table = pilot.app.screen.query_one("#deployments", Rows)

        def cells(key: str) -> list[Text]:
            return [cell for cell in table.get_row(key) if isinstance(cell, Text)]

        (muted,) = {cell.style for cell in cells("13")}
        usual = table.rich_style.color
        assert isinstance(muted, Style) and muted.color is not None and muted.color != usual
        assert any("3m ago" in cell.plain for cell in cells("13"))
        assert {cell.style for cell in cells("11")} == {""}


async def test_the_cursor_stays_on_its_row_when_rows_come_and_go() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        table: Rows[object] = pilot.app.screen.query_one("#deployments", Rows)
        await pilot.press("down")
        source.report = replace(RICH, deployments=(replace(CHAT, deployment_id=9, model="newcomer"), *RICH.deployments))
        await until_shown(pilot, "newcomer")
        assert table.cursor_row == 2


def test_the_plain_summary_needs_no_terminal_library() -> None:
    code = "import pertoken.tui.text.summary, pertoken.tui.keys, sys; sys.exit('textual' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_table_of_a_thousand_lines_makes_the_rows_that_the_cursor_comes_to() -> None:
    made: list[int] = []

    def line(n: int) -> DeviceLine:
        made.append(n)
        return device(n, "gpu-a", n, ())

    report = replace(RICH, deployments=(), devices=Lines(range(1000), line))
    async with running(FixedSource(report), (80, 24)) as pilot:
        table: Rows[DeviceLine] = pilot.app.screen.query_one("#devices", Rows)
        await until_shown(pilot, "HBM3 #0")
        assert (table.row_count, max(made)) == (PAGE, PAGE - 1)
        await pilot.press("ctrl+end")
        await until(pilot, lambda: table.row_count == 2 * PAGE, "a second page")
        assert max(made) == 2 * PAGE - 1
        await pilot.press("slash", *"#999")
        await until_shown(pilot, "HBM3 #999")
        assert table.row_count == 1


async def test_hours_are_read_while_somebody_looks_at_them() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        asked = len(source.windows)
        await until(pilot, lambda: len(source.windows) > asked + 1, "more readings")
        assert source.hours_asked == 0
        await pilot.press("h")
        await until_shown(pilot, "by hour")
        source.day = source.day[:1]
        await until_gone(pilot, "no-price")
        await pilot.press("1")
        await until_shown(pilot, "run/wait")


async def test_a_filter_that_no_row_passes_is_said_and_dropped_by_escape() -> None:
    async with running(FixedSource(), (100, 30), refresh_s=0.05) as pilot:
        await pilot.press("slash", *"nothing-like-it")
        await until_shown(pilot, "No row here holds every word of “nothing-like-it”: esc drops the filter.")
        await pilot.press("escape")
        await until_gone(pilot, "No row here")
        await until_shown(pilot, "70B-Instruct")


async def test_devices_of_several_hosts_in_one_slot_stay_apart_on_a_small_screen() -> None:
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "HBM3 #2")
        lines = [line.split() for line in text_of(pilot).splitlines() if "HBM3 #" in line]
        assert len(lines) == len({(*line[:5], "gpu-a" in line) for line in lines}) == 5
