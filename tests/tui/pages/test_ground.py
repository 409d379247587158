"""Pages with one strip of background as their ground."""

import os

import pytest
from textual.color import Color
from textual.geometry import Region

from tests.tui.reports import FixedSource
from tests.tui.screens import running

BROAD = (120, 40)


async def test_every_line_of_a_page_is_one_strip_of_its_background() -> None:
    async with running(FixedSource(), BROAD) as pilot:
        screen = pilot.app.screen
        lines = screen.render_lines(Region(0, 3, 70, 4))
        assert len(lines) == 4 and len({id(line) for line in lines}) == 1
        assert lines[0].text == " " * 70
        assert colour_of(screen.render_lines(Region(0, 0, 1, 1))) == screen.background_colors[1].rgb


async def test_a_page_is_grey_where_colours_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    async with running(FixedSource(), BROAD) as pilot:
        red, green, blue = colour_of(pilot.app.screen.render_lines(Region(0, 0, 5, 1)))
        assert red == green == blue


def colour_of(lines: list) -> tuple[int, int, int]:  # type: ignore[type-arg]
    (segment,) = lines[0]
    return Color.from_rich_color(segment.style.bgcolor).rgb
