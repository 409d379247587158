"""Draw screens of a made-up fleet as SVG; the clock stands still, so that the same code draws the same picture."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from tests.tui.reports import HOSTILE, FixedSource
from tests.tui.screens import running, until_shown

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MODEL = "mistralai/Mistral-Nemo-Instruct-2407"
_PLAIN = {
    f"SyntaxError: {HOSTILE}": "SyntaxError: '(' was never closed",
    f"batch limit {HOSTILE}": "batch limit",
    f"proposed {HOSTILE}": "proposed",
    HOSTILE: MODEL,
}
"""What stands where the tests have a text that tries to break the screen."""
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A picture asks no other host for a font: the reader's own is used."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One screen: the keys that lead to it, and a text by which it is there."""

    name: str
    keys: Sequence[str]
    shows: str
    size: tuple[int, int] = (110, 30)


PICTURES = (
    Picture("fleet", (), "run/wait"),
    Picture("service", ("enter",), "Tokens, tok/s", (110, 44)),
    Picture("savings", ("2",), "Least certain"),
    Picture("recommendation", ("2", "down", "enter"), "Worth, per month", (110, 54)),
    Picture("plan", ("3",), "Least certain"),
    Picture("rules", ("4",), "use-spot"),
)


def drawn(picture: Picture) -> str:
    """Return a picture as SVG."""
    return asyncio.run(_drawn(picture))


async def _drawn(picture: Picture) -> str:
    async with running(_Example(), picture.size) as pilot:
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause()
        await until_shown(pilot, picture.shows)
        await pilot.pause(0.2)
        svg = pilot.app.export_screenshot(title="pertoken", simplify=True)
    return without_fonts(svg)


def without_fonts(svg: str) -> str:
    """Return a picture that loads no font of another host."""
    return _FONTS.sub("", svg).rstrip() + "\n"


class _Example(FixedSource):
    """The source of the tests with plain names."""

    def fleet(self, *args: Any, **kwargs: Any) -> Any:
        return _plain(super().fleet(*args, **kwargs))

    def advice(self, *args: Any, **kwargs: Any) -> Any:
        return _plain(super().advice(*args, **kwargs))

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        return _plain(super().plan(*args, **kwargs))

    def rules(self) -> Any:
        return _plain(super().rules())

    def detail(self, *args: Any, **kwargs: Any) -> Any:
        return _plain(super().detail(*args, **kwargs))


def _plain(value: Any) -> Any:
    """Return a value with the names and texts of `_PLAIN` in place of those that try to break the screen."""
    if type(value) is str:
        for hostile, plain in _PLAIN.items():
            value = value.replace(hostile, plain)
        return value
    if type(value) is tuple:
        return tuple(map(_plain, value))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {part.name: _plain(getattr(value, part.name)) for part in fields(value) if part.init}
        same = all(changed[name] is getattr(value, name) for name in changed)
        return value if same else replace(value, **changed)
    return value
