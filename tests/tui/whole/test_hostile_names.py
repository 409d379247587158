"""Hostile and careless names: on every screen they are shown as text, and none is lost."""

from textual.pilot import Pilot

from pertoken.printable import acts, literal
from pertoken.tui.pages.page import Page
from tests.tui.screens import running, settled, text_of, until_shown
from tests.tui.whole.names import NAMES, hostile
from tests.tui.whole.states import OPTIONS

WALK = (
    (("dollar_sign",), "cost you"),
    (("escape", "enter"), "Tokens, tok/s"),
    (("escape", "g"), "By tenant"),
    (("enter",), "team"),
    (("escape", "g", "tab", "enter"), "Its host"),
    (("escape", "dollar_sign"), "cost you"),
    (("escape", "2"), "Bankable"),
    (("enter",), "Worth"),
    (("escape", "3"), "bill now"),
    (("4",), "last result"),
    (("enter",), "track record"),
    (("escape", "space"), "Switch"),
    (("escape", "s"), "theme"),
    (("1", "E"), "What happened"),
    (("escape", "colon", "n"), "nnn"),
)
"""Keys that go from screen to screen, with a text of each screen at 80 columns."""


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
