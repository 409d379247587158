"""Rows of tables: what the selected one looks like in every theme."""

from dataclasses import replace

import pytest
from rich.color_triplet import ColorTriplet
from textual.theme import BUILTIN_THEMES

from pertoken.tui.widgets.rows import Rows
from tests.tui.reports import RICH, FixedSource
from tests.tui.screens import running, until_shown

MIN_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3: text of usual size."""

USUAL = ("textual-dark", "textual-light")
"""Themes whose rows that are not selected hold it too; some themes have text of less contrast everywhere."""


def luminance(color: ColorTriplet) -> float:
    """Relative luminance as WCAG 2.2 defines it."""

    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue)


def contrast(text: ColorTriplet, ground: ColorTriplet) -> float:
    darker, lighter = sorted((luminance(text), luminance(ground)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", sorted(name for name in BUILTIN_THEMES if "ansi" not in name))
async def test_the_selected_row_and_stale_rows_can_be_read_in_every_theme(theme: str) -> None:
    stale = replace(RICH.deployments[1], age_s=9000)
    report = replace(RICH, deployments=(RICH.deployments[0], stale, replace(stale, deployment_id=99)))
    async with running(FixedSource(report), (120, 40)) as pilot:
        pilot.app.theme = theme
        await pilot.pause()
        for state in ("selected", "selected and stale", "not focused"):
            await until_shown(pilot, "Qwen/Qwen3-8B")
            await pilot.pause()
            cursors = {
                table.get_component_rich_style("datatable--cursor").bgcolor for table in pilot.app.screen.query(Rows)
            }
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
                        assert contrast(text, ground) >= MIN_CONTRAST, (
                            theme,
                            state,
                            segment.text,
                            text.hex,
                            ground.hex,
                        )
                    selected += [segment.text] if style.bgcolor in cursors else []
            assert selected
            await pilot.press("down" if state == "selected" else "tab")
