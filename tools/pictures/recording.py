"""An animated recording of the demo for the README: real screens over a generated fleet, one after another."""

import asyncio
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from pertoken.cli.advise import run_quietly
from pertoken.cli.screens.up import screen_options, screen_source
from pertoken.config import Settings, load
from pertoken.demo.live import Live, follow
from pertoken.demo.making import make
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.tui.app import PertokenApp
from tests.tui.screens import settled, until_shown
from tools.pictures.draw import FOLDER, without_fonts

FILE = FOLDER / "demo.svg"
SEED, HOSTS, DAYS = 1, 24, 30
SIZE = (110, 32)
FRAME_S = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """The next screen of the recording: the keys that lead to it, and a text by which it is there."""

    title: str
    keys: Sequence[str]
    shows: str


SCENES = (
    Scene("pertoken demo: what runs, and what a million tokens costs", (), "$/Mtok"),
    Scene("enter: one service, with its tokens, latencies and costs", ("enter",), "Tokens, tok/s"),
    Scene("2: what could be cheaper, and what was refused", ("escape", "2"), "ankable"),
    Scene("enter: one recommendation, with its reason, worth and commands", ("enter",), "read more"),
    Scene("3: the plan, in the order in which to do it", ("escape", "3"), "Least certain"),
)


def recorded() -> str:
    """Return the recording as SVG. It makes a demo that goes on meanwhile, which takes some minutes."""
    with tempfile.TemporaryDirectory() as folder:
        where = locate(f"{folder}/demo")
        made = make(where, SEED, HOSTS, DAYS, int(time.time()))
        settings = load(Path(folder) / "demo/pertoken.toml", {"PERTOKEN_SCREENS_REMEMBER": "false"})
        follow(where, made, settings)
        run_quietly(where, settings)
        live = Live(where, made)
        live.start()
        try:
            return animated(asyncio.run(_frames(where, settings)))
        finally:
            live.stop()


async def _frames(where: StoreLocation, settings: Settings) -> list[str]:
    app = PertokenApp(screen_source(where, settings, read_only=True), options=screen_options(where, settings))
    app.animation_level = "none"
    async with app.run_test(size=SIZE) as pilot:
        return [await _frame(pilot, scene) for scene in SCENES]


async def _frame(pilot: Pilot[None], scene: Scene) -> str:
    for key in scene.keys:
        await pilot.press(key)
        await pilot.pause()
    await until_shown(pilot, scene.shows)
    await settled(pilot)
    return without_fonts(pilot.app.export_screenshot(title=scene.title, simplify=True))


def animated(frames: Sequence[str], frame_s: int = FRAME_S) -> str:
    """Return pictures of one size as one SVG that shows each in turn; who wants no motion sees the first."""
    (box,) = {re.findall(r'viewBox="[^"]+"', frame)[0] for frame in frames}
    share = 100 / len(frames)
    delays = "".join(f".frame:nth-of-type({n + 1}){{animation-delay:{n * frame_s}s}}" for n in range(len(frames)))
    style = (
        ".frame{visibility:hidden}.frame:first-of-type{visibility:visible}"
        f"@keyframes turn{{0%{{visibility:visible}}{share:g}%{{visibility:hidden}}100%{{visibility:hidden}}}}"
        "@media (prefers-reduced-motion:no-preference){"
        f".frame{{animation:turn {frame_s * len(frames)}s step-end infinite}}{delays}}}"
    )
    groups = "".join(f'<g class="frame">{frame}</g>\n' for frame in frames)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n<style>{style}</style>\n{groups}</svg>\n'
