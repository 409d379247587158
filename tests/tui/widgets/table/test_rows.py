"""Rows of tables: contrast, cursor, order and number."""

from dataclasses import replace

from rich.color import Color
from rich.color_triplet import ColorTriplet
from textual.pilot import Pilot
from textual.theme import BUILTIN_THEMES

from pertoken.costs.report.lines import DeviceLine, Lines
from pertoken.tui.widgets.table import AHEAD, PAGE, Rows
from tests.tui.reports import CHAT, RICH, FixedSource, device
from tests.tui.screens import running, until, until_shown

MIN_CONTRAST = 4.5
"""Least contrast of text by WCAG 2.2, 1.4.3."""

USUAL = ("textual-dark", "textual-light")
"""Themes in which rows that are not selected have this contrast too; some themes have less everywhere."""


def luminance(color: ColorTriplet) -> float:
    """Return the relative luminance of WCAG 2.2."""

    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue)


def contrast(text: ColorTriplet, ground: ColorTriplet) -> float:
    darker, lighter = sorted((luminance(text), luminance(ground)))
    return (lighter + 0.05) / (darker + 0.05)


async def test_the_selected_row_and_stale_rows_can_be_read_in_every_theme() -> None:
    stale = replace(RICH.deployments[1], age_s=9000)
    report = replace(RICH, deployments=(RICH.deployments[0], stale, replace(stale, deployment_id=99)))
    async with running(FixedSource(report), (120, 40)) as pilot:
        table = pilot.app.screen.query_one("#deployments", Rows)
        for theme in sorted(name for name in BUILTIN_THEMES if "ansi" not in name):
            pilot.app.theme = theme
            table.focus()
            table.move_cursor(0)
            await pilot.pause()
            for state in ("selected", "selected and stale", "not focused"):
                await until_shown(pilot, "Qwen/Qwen3-8B")
                await pilot.pause()
                assert_readable(pilot, theme, state)
                await pilot.press("down" if state == "selected" else "tab")


def assert_readable(pilot: Pilot[None], theme: str, state: str) -> None:
    cursors = {table.get_component_rich_style("rows--cursor").bgcolor for table in pilot.app.screen.query(Rows)}
    selected = []
    for strip in pilot.app.screen._compositor.render_strips():
        if not any(name in strip.text for name in ("70B-Instruct", "Qwen")):
            continue
        for segment in strip:
            style = segment.style
            if style is None or not segment.text.strip() or style.color is None or style.bgcolor is None:
                continue
            assert not style.dim
            text, ground = style.color.get_truecolor(), style.bgcolor.get_truecolor()
            if style.bgcolor in cursors or theme in USUAL:
                read = (theme, state, segment.text, text.hex, ground.hex)
                assert contrast(text, ground) >= MIN_CONTRAST, read
            selected += [segment.text] if style.bgcolor in cursors else []
    assert selected


async def test_stale_rows_are_dimmed_and_carry_their_age() -> None:
    async with running(FixedSource()) as pilot:
        table = pilot.app.screen.query_one("#deployments", Rows)

        def colours(row: int) -> set[Color | None]:
            return {segment.style.color for segment in table.render_line(1 + row) if segment.style}

        assert [table.line_at(row)[1] for row in range(3)] == [False, False, True]
        assert "stale 3m" in table.line_at(2)[0]
        assert colours(1) == {table.rich_style.color} != colours(2)


async def test_the_cursor_stays_on_its_row_when_rows_come_and_go() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        table: Rows[object] = pilot.app.screen.query_one("#deployments", Rows)
        await pilot.press("down")
        source.report = replace(RICH, deployments=(replace(CHAT, deployment_id=9, model="newcomer"), *RICH.deployments))
        await until_shown(pilot, "newcomer")
        assert table.cursor_row == 2


async def test_a_table_of_a_thousand_lines_makes_the_rows_that_the_cursor_comes_to() -> None:
    made: list[int] = []

    def line(n: int) -> DeviceLine:
        made.append(n)
        return device(n, "gpu-a", n, ())

    report = replace(RICH, deployments=(), devices=Lines(range(1000), line))
    async with running(FixedSource(report), (80, 24)) as pilot:
        table: Rows[DeviceLine] = pilot.app.screen.query_one("#devices", Rows)
        await until_shown(pilot, "HBM3 #0")
        first = table.row_count
        assert table.size.height <= first <= pilot.app.size.height + AHEAD
        assert max(made) == first - 1
        await pilot.press("ctrl+end")
        await until(pilot, lambda: table.row_count == first + PAGE, "a second page")
        assert max(made) == first + PAGE - 1
        table.scroll_end(animate=False)  # as the wheel does, which moves no cursor
        await until(pilot, lambda: table.row_count == first + 2 * PAGE, "a third page")
        await pilot.press("slash", *"#999")
        await until_shown(pilot, "HBM3 #999")
        assert table.row_count == 1


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
