"""Window, pause and replay."""

from dataclasses import replace

from tests.tui.reports import NOW, RICH, FixedSource
from tests.tui.screens import notices, running, text_of, until, until_gone, until_shown


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


async def test_savings_have_no_window_and_show_the_reason() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("2", "right_square_bracket")
        assert await notices(pilot) == ["Only the fleet has a window: press 1 first."]


async def test_pause_freezes_the_figures_until_pressed_again() -> None:
    source, asked = FixedSource(), list[float]()

    def now() -> float:
        asked.append(NOW)
        return NOW

    async with running(source, refresh_s=0.05, clock=now) as pilot:
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


async def test_comma_and_full_stop_step_through_history_and_back_to_now() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("comma")
        await until_shown(pilot, "to 2027-01-15 07:55Z · REPLAY")
        await pilot.press("comma")
        await until_shown(pilot, "to 2027-01-15 07:50Z · REPLAY")
        await pilot.press("full_stop", "full_stop")
        await until_shown(pilot, "· live ·")
        await pilot.press("full_stop")
        assert await notices(pilot) == ["This is the newest time: press , to step back."]


async def test_angle_brackets_go_from_event_to_event() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("less_than_sign", "less_than_sign")
        await until_shown(pilot, "to 2027-01-15 07:06Z · REPLAY")
        await pilot.press("greater_than_sign")
        await until_shown(pilot, "to 2027-01-15 07:57Z · REPLAY")
        assert source.moments[-1] == NOW - 180


async def test_nothing_is_decided_in_the_past() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("comma", "2")
        await until_shown(pilot, "Serve FP8")
        await pilot.press("a")
        assert await notices(pilot) == ["This is the past: press n to go back to now, then decide."]
