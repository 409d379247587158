"""Draw screens of a made-up fleet as SVG; the clock stands still, so that the same code draws the same picture."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport
from tests.tui.reports import HOSTILE, RICH, FixedSource
from tests.tui.screens import running, until_shown

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MODEL = "mistralai/Mistral-Nemo-Instruct-2407"
"""Stands where the tests have a name that tries to break the screen."""
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
    Picture("recommendation", ("2", "enter"), "Worth, per month", (110, 40)),
    Picture("plan", ("3",), "Least certain"),
    Picture("rules", ("4",), "use-spot"),
)


def drawn(picture: Picture) -> str:
    """Return a picture as SVG."""
    return asyncio.run(_drawn(picture))


async def _drawn(picture: Picture) -> str:
    async with running(FixedSource(_example()), picture.size) as pilot:
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause()
        await until_shown(pilot, picture.shows)
        await pilot.pause(0.2)
        svg = pilot.app.export_screenshot(title="pertoken", simplify=True)
    return _FONTS.sub("", svg).rstrip() + "\n"


def _example() -> FleetReport:
    def shown(line: DeploymentLine) -> DeploymentLine:
        return replace(line, model=MODEL) if line.model == HOSTILE else line

    def held(line: DeviceLine) -> DeviceLine:
        names = line.held_by and tuple(MODEL if name == HOSTILE else name for name in line.held_by)
        return replace(line, held_by=names)

    return replace(
        RICH,
        deployments=tuple(map(shown, RICH.deployments)),
        devices=tuple(map(held, RICH.devices)),
        hints=tuple(hint.replace(HOSTILE, MODEL) for hint in RICH.hints),
        uses=tuple(
            replace(use, models=tuple(MODEL if name == HOSTILE else name for name in use.models)) for use in RICH.uses
        ),
    )
