"""Parts that every page has: a title with its state, and a banner."""

from dataclasses import replace
from threading import Event

from pertoken.tui.pages.page import next_stale_s
from tests.tui.reports import NOW, RICH, FixedSource, host, locked
from tests.tui.screens import running, until, until_gone, until_shown


async def test_a_notice_stands_above_every_page_until_it_is_no_longer_true() -> None:
    notices: list[str | None] = ["The agent \x1bended."]
    async with running(FixedSource(), refresh_s=0.05, notice=lambda: notices[0]) as pilot:
        await until_shown(pilot, "The agent \\x1bended.")
        await pilot.press("2")
        await until_shown(pilot, "The agent \\x1bended.")
        notices[0] = None
        await until_gone(pilot, "The agent")


async def test_figures_are_not_live_once_no_host_reports() -> None:
    source, clock = FixedSource(), [float(NOW)]
    async with running(source, refresh_s=0.05, clock=lambda: clock[0]) as pilot:
        await until_shown(pilot, "· live ·")
        clock[0] += 300
        await until_shown(pilot, "· stale 5m ·")
        await pilot.press("h")
        await until_shown(pilot, "Hours · stale 5m ·")
        source.report = replace(RICH, hosts=(host(1, "gpu-a", age_s=-296), host(2, "gpu-b", age_s=900)))
        await until_shown(pilot, "· live ·")


async def test_the_title_of_a_plan_has_the_age_of_the_telemetry_behind_it() -> None:
    source, clock = FixedSource(), [float(NOW)]
    async with running(source, refresh_s=0.05, clock=lambda: clock[0]) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Plan · as of now · ")
        clock[0] += 300
        await until_shown(pilot, "ago, telemetry 5m old · ")
        await pilot.press("4")
        await until_shown(pilot, "Rules · as of")
        await until_gone(pilot, "telemetry")


async def test_the_title_shows_how_long_the_database_has_not_answered() -> None:
    gate, clock = Event(), [float(NOW)]
    gate.set()
    source = FixedSource(wait=gate)
    try:
        async with running(source, refresh_s=0.05, clock=lambda: clock[0]) as pilot:
            await until_shown(pilot, "live")
            gate.clear()
            await until(pilot, lambda: pilot.app._waiting, "a reading under way")  # type: ignore[attr-defined]
            clock[0] += 75
            await until_shown(pilot, "no answer for 75s")
    finally:
        gate.set()


async def test_the_title_keeps_the_window_of_the_figures_while_the_database_is_locked() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        await until_shown(pilot, "· last 1h · live ·")
        source.error = locked
        await pilot.press("right_square_bracket")
        await until_shown(pilot, "· last 1h (6h is not read yet) · not answering ·")
        source.error = None
        await until_shown(pilot, "· last 6h · live ·")


async def test_a_host_is_stale_two_ticks_after_its_last_row_before_anything_is_read_again() -> None:
    clock = [NOW + 0.0]
    hosts = (host(1, "gpu-a", age_s=4), host(2, "gpu-b", age_s=19))
    async with running(FixedSource(replace(RICH, hosts=hosts)), clock=lambda: clock[0]) as pilot:
        await until_shown(pilot, "· live ·")
        wait_s = next_stale_s(pilot.app.view())  # type: ignore[attr-defined]
        assert wait_s is not None and 1.0 < wait_s < 1.1
        clock[0] += 1.06
        await until(pilot, lambda: next_stale_s(pilot.app.view()) != wait_s, "the next host")  # type: ignore[attr-defined]
        clock[0] += 16
        await until_shown(pilot, "stale 21s")
