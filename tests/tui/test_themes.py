"""Legibility of all text: in both themes, without colours, and without box drawing."""

import os
from collections.abc import Iterator
from typing import Literal

import pytest
from rich.segment import Segment
from textual.color import Color
from textual.command import CommandPalette
from textual.pilot import Pilot

from pertoken.tui.app import PertokenApp
from pertoken.tui.options import Options
from pertoken.tui.themes import ASCII, AsciiDrawing
from tests.tui.reports import NOW, FixedSource, locked
from tests.tui.screens import NEVER_S, running, settled, text_of, until, until_shown

MIN_CONTRAST = 4.5
"""Least contrast of text by WCAG 2.2, 1.4.3."""
PATHS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((), "run/wait"),
    (("g",), "By host"),
    (("tab",), "GPUs"),
    (("g", "g", "slash", *"zebra"), "No row contains"),
    (("escape", "enter"), "Where a dollar goes"),
    (("2",), "Serve FP8"),
    (("down", "enter"), "Why"),
    (("escape", "a"), "esc"),
    (("escape", "3"), "Least certain"),
    (("4",), "use-spot"),
    (("h",), "by hour"),
    (("s",), "16-colour"),
    (("question_mark",), "Show the fleet"),
    (("escape", "colon"), "screen fleet"),
    (("escape", "1", "comma"), "REPLAY"),
    (("n", "c"), "no room or no values"),
    (("escape", "slash", *"llama", "enter"), "keeps"),
    (("escape", "E"), "What happened"),
    (("escape", "3", "w"), "An empty line"),
    (("escape", "e"), "Export the plan"),
    (("escape", "2", "tab"), "use-spot"),
    (("1", "ctrl+p"), "Show the fleet"),
)
"""Keys to each screen in turn, with a text that it shows."""


def texts(pilot: Pilot[None]) -> Iterator[Segment]:
    """Return the segments with more than blanks and drawing characters; of the palette, without the page under it."""
    screen = pilot.app.screen
    strips = screen._compositor.render_strips()
    if isinstance(screen, CommandPalette):
        region = screen.query_one("#--container").region
        strips = [strip.crop(region.x, region.right) for strip in strips[region.y : region.bottom]]
    for strip in strips:
        for segment in strip:
            if any(ord(letter) not in ASCII and not letter.isspace() for letter in segment.text):
                yield segment


def luminance(colour: Color) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = (part / 255 for part in colour.rgb)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast_of(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def poor(pilot: Pilot[None]) -> set[str]:
    """Return the texts with too little contrast, with their colours."""
    styles = set()
    for segment in texts(pilot):
        style = segment.style
        assert style is not None and style.color is not None and style.bgcolor is not None, segment
        fore, back = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
        contrast = contrast_of(fore, back)
        if contrast < MIN_CONTRAST:
            styles.add(f"{segment.text.strip()!r}: {fore.hex} on {back.hex}, {contrast:.2f}")
    return styles


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_every_text_of_every_state_has_enough_contrast(theme: str) -> None:
    source = FixedSource()
    async with running(source, (100, 30), options=Options(theme=theme)) as pilot:
        colours: set[str] = set()
        for keys, text in PATHS:
            await pilot.press(*keys)
            await until_shown(pilot, text)
            await pilot.pause()
            colours |= poor(pilot)
        await pilot.press("escape", "n", "1")
        source.error = locked
        await pilot.press("right_square_bracket")
        await until_shown(pilot, "These figures are from")
        assert colours | poor(pilot) == set()


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("severity", ["information", "warning", "error"])
async def test_notifications_have_enough_contrast(
    theme: str, severity: Literal["information", "warning", "error"]
) -> None:
    app = PertokenApp(FixedSource(), refresh_s=NEVER_S, now=lambda: NOW, options=Options(theme=theme))
    app.animation_level = "none"
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until_shown(pilot, "run/wait")
        app.notify("It is open: nothing was stored.", severity=severity, markup=False)
        await until_shown(pilot, "nothing was stored")
        assert poor(pilot) == set()


async def test_sixteen_colours_are_the_terminals_own() -> None:
    async with running(FixedSource(), options=Options(theme="16-colour")) as pilot:
        await until_shown(pilot, "run/wait")
        colours = {colour for segment in texts(pilot) if segment.style for colour in (segment.style.color,) if colour}
        assert colours and all(colour.triplet is None for colour in colours)


async def test_without_colours_nothing_is_lost_on_any_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = []
    async with running(FixedSource(), (100, 30)) as pilot:
        for keys, text in PATHS:
            await pilot.press(*keys)
            await until_shown(pilot, text)
            coloured.append(_without_theme(await settled(pilot)))
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    async with running(FixedSource(), (100, 30)) as pilot:
        for (keys, text), expected in zip(PATHS, coloured, strict=True):
            await pilot.press(*keys)
            await until_shown(pilot, text)
            await until(pilot, lambda expected=expected: _without_theme(text_of(pilot)) == expected, expected)  # type: ignore[misc]
            for segment in texts(pilot):
                assert segment.style is not None and segment.style.color is not None
                red, green, blue = segment.style.color.get_truecolor()
                assert red == green == blue, segment


def _without_theme(screen: str) -> str:
    """Return a screen without the line that names NO_COLOR."""
    return "\n".join(line for line in screen.splitlines() if not line.startswith(" theme"))


async def test_ascii_borders_leave_no_box_drawing_on_any_screen() -> None:
    async with running(FixedSource(), (100, 30), options=Options(borders="ascii")) as pilot:
        await until_shown(pilot, "$0.412/Mtok")  # large digits could not be read
        for keys, text in ((("enter",), "Tokens, tok/s"), (("2",), "Open (3)"), (("3",), "Least certain")):
            await pilot.press(*keys)
            await until_shown(pilot, text)
            assert [letter for letter in text_of(pilot) if ord(letter) in ASCII] == []


def test_ascii_drawing_keeps_the_width_of_a_line() -> None:
    drawing = "".join(map(chr, ASCII))
    assert all(len(str(new)) == 1 for new in ASCII.values())
    assert len(AsciiDrawing().apply([Segment(drawing)], Color(0, 0, 0))[0].text) == len(drawing)
