"""The real app under Pilot: its screen as plain text, compared with golden files."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from textual.app import App
from textual.pilot import Pilot

from pertoken.tui.app import PertokenApp
from pertoken.tui.options import Options
from pertoken.tui.pages.page import Page
from pertoken.tui.source import Read
from tests.tui.reports import NOW, FixedSource

GOLDEN = Path(__file__).parent / "golden"
REWRITE = "PERTOKEN_REWRITE_GOLDEN"
"""Variable that makes tests rewrite the golden files; read the difference before you commit it."""
DEADLINE_S = 20.0
DRAWN_S = 5.0
"""Longest wait for a screen to be laid out."""
NEVER_S = 3600.0
_NOTICES: WeakKeyDictionary[App[None], list[str]] = WeakKeyDictionary()


def text_of(pilot: Pilot[None]) -> str:
    """Return the screen as lines of text, without colours and trailing blanks."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


async def until(pilot: Pilot[None], condition: Callable[[], bool], what: str) -> None:
    """Run the app until a condition holds; after a deadline, fail with the screen."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen:\n{text_of(pilot)}"
        await pilot.pause()


async def until_shown(pilot: Pilot[None], text: str) -> None:
    await until(pilot, lambda: text in text_of(pilot), repr(text))


async def until_gone(pilot: Pilot[None], text: str) -> None:
    await until(pilot, lambda: text not in text_of(pilot), f"the end of {text!r}")


async def notices(pilot: Pilot[None]) -> list[str]:
    """Return the messages that the app has notified so far."""
    await pilot.pause()
    return list(_NOTICES[pilot.app])


def _record_notices(app: PertokenApp) -> None:
    """Record all notifications: the app drops its own after seconds."""
    messages: list[str] = []
    notify = app.notify

    def recorded(message: str, **kwargs: Any) -> None:
        messages.append(message)
        notify(message, **kwargs)

    app.notify = recorded  # type: ignore[method-assign]
    _NOTICES[app] = messages


@asynccontextmanager
async def running(
    source: FixedSource,
    size: tuple[int, int] = (80, 24),
    refresh_s: float = NEVER_S,
    now: Callable[[], float] = lambda: NOW,
    notice: Callable[[], str | None] = lambda: None,
    options: Options | None = None,
) -> AsyncIterator[Pilot[None]]:
    """Run the app over a source; yield it after its first reading."""
    app = PertokenApp(source, refresh_s=refresh_s, now=now, notice=notice, options=options)
    app.animation_level = "none"
    _record_notices(app)
    async with app.run_test(size=size) as pilot:
        if source.wait is None:
            # The timeline is read last: the first figures are shown before it.
            await until(
                pilot, lambda: isinstance(app.screen, Page) and app.view().reading.timeline != Read(), "a reading"
            )
            await until_shown(pilot, "Quit" if size[0] >= 80 else "Fleet")
        yield pilot


async def settled(pilot: Pilot[None]) -> str:
    """Return the screen after it has stopped changing: a busy machine lays it out in several steps."""
    same, last = 0, ""
    while same < 4:
        await pilot.pause(0.05)
        text = text_of(pilot)
        same, last = (same + 1 if text == last else 0), text
    return last


async def check_golden(pilot: Pilot[None], name: str) -> None:
    """Compare the screen with its golden file after it is drawn: the layout may follow the figures by some messages."""
    file = GOLDEN / f"{name}.txt"
    await pilot.pause()
    if os.environ.get(REWRITE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(await settled(pilot))
    assert file.exists(), f"{file} is missing: run the tests with {REWRITE}=1 to write it"
    golden = file.read_text()
    deadline = time.monotonic() + DRAWN_S
    while text_of(pilot) != golden and time.monotonic() < deadline:
        await pilot.pause(0.05)
    assert text_of(pilot) == golden, f"{file} differs: read it, and if it is right, run the tests with {REWRITE}=1"
