"""Hostile and careless names: on every screen they are shown as text, and none is lost."""

from dataclasses import replace

from textual.pilot import Pilot

from pertoken.printable import acts, literal
from pertoken.tui.pages.page import Page
from tests.tui.reports import ADVICE, CHAT, RICH, TENANTS, FixedSource, device, host, use
from tests.tui.screens import running, settled, text_of, until_shown
from tests.tui.whole.states import OPTIONS

NAMES = (
    "[/b][red]markup[@click=app.quit]",
    "esc\x1b[31m\x1b]0;title\x07",
    "rtl\u202eledom\u2067",
    "模型宽字符的名字",
    "🦙👩‍👩‍👧‍👦 emoji",
    "n" * 300,
)
WALK = (
    (("enter",), "Tokens, tok/s"),
    (("escape", "g"), "By tenant"),
    (("2",), "Bankable"),
    (("enter",), "Worth"),
    (("escape", "3"), "bill now"),
    (("4",), "rule"),
    (("s",), "theme"),
    (("1", "E"), "What happened"),
    (("escape", "colon", "n"), "nnn"),
)
"""Keys that go from screen to screen, with a text of each screen at 80 columns."""


def hostile() -> FixedSource:
    hosts = tuple(host(n, name) for n, name in enumerate(NAMES, 1))
    report = replace(
        RICH,
        hosts=hosts,
        uses=tuple(use(host, (host.name,)) for host in hosts),
        devices=tuple(replace(device(20 + n, name, 0, (name,)), name=name) for n, name in enumerate(NAMES)),
        deployments=tuple(
            replace(CHAT, deployment_id=n, model=name, host=name, devices=(name,)) for n, name in enumerate(NAMES)
        ),
        events=tuple(replace(RICH.events[0], message=name) for name in NAMES),
        hints=(),
    )
    tenants = replace(TENANTS, lines=tuple(replace(TENANTS.lines[0], name=name) for name in NAMES))
    advice = tuple(replace(row, title=name, target=name) for row, name in zip(ADVICE, NAMES, strict=False))
    return FixedSource(report, advice, bill=tenants)


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
