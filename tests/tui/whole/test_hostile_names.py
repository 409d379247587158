"""Hostile and careless names: on every screen they are shown as text, and none is lost."""

import pytest
from textual.pilot import Pilot

from pertoken.printable import acts, literal
from pertoken.tui.pages.page import Page
from tests.tui.screens import running, settled, text_of, until_shown
from tests.tui.whole.names import NAMES, hostile
from tests.tui.whole.states import OPTIONS

WALK = (
    (("dollar_sign",), "cost you"),
    (("escape", "enter"), "Tokens, tok/s"),
    (("escape", "c"), "no room or no values"),
    (("escape", "comma"), "REPLAY"),
    (("n", "g"), "By tenant"),
    (("enter",), "team"),
    (("escape", "g", "tab", "enter"), "Its host"),
    (("escape", "dollar_sign"), "cost you"),
    (("escape", "2"), "Bankable"),
    (("enter",), "How much a month"),
    (("a",), "Accept this recommendation?"),
    (("escape", "escape", "3"), "bill now"),
    (("down", "enter"), "How to undo it"),
    (("escape", "e"), "Export the plan"),
    (("escape", "4"), "last result"),
    (("enter",), "track record"),
    (("escape", "space"), "Switch"),
    (("escape", "h"), "by hour"),
    (("enter",), "per Mtok"),
    (("escape", "s"), "theme"),
    (("1", "E"), "What happened"),
    (("escape", "colon", "n"), "nnn"),
    (("escape", "slash", "left_square_bracket", "slash", "b"), "["),
    (("enter",), "keeps"),
    (("escape", "ctrl+p"), "Search"),
)
"""Keys that go from screen to screen, with a text of each screen at 80 columns."""
TABLES = (("1", "By tenant"), ("2", "Bankable"), ("3", "bill now"), ("4", "last result"), ("h", "by hour"))
"""Keys of the screens with tables, each with a text that it shows."""


def assert_text(pilot: Pilot[None]) -> None:
    assert not [char for char in text_of(pilot) if char != "\n" and acts(char)]


async def test_names_of_any_kind_are_text_on_every_screen_and_none_vanishes() -> None:
    async with running(hostile(), options=OPTIONS) as pilot:
        page = pilot.app.screen
        assert isinstance(page, Page)
        assert all(literal(name) in page.as_text() for name in NAMES)
        for keys, text in WALK:
            await pilot.press(*keys)
            await until_shown(pilot, text)
            for size in ((45, 15), (120, 40), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
                assert_text(pilot)
            await settled(pilot)
            assert_text(pilot)


@pytest.mark.parametrize(("key", "text"), TABLES)
async def test_no_table_loses_a_name(key: str, text: str) -> None:
    async with running(hostile(), (120, 40), options=OPTIONS) as pilot:
        if key == "1":
            await pilot.press("g")
        else:
            await pilot.press(key)
        await until_shown(pilot, text)
        page = pilot.app.screen
        assert isinstance(page, Page)
        assert [name for name in NAMES if literal(name) not in page.as_text()] == []
