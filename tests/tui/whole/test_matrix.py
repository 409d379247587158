"""Every screen as text, at three sizes, in each state of a database."""

import os
import time

import pytest
from textual.pilot import Pilot

from tests.tui.reports import locked
from tests.tui.screens import DRAWN_S, GOLDEN, REWRITE, running, settled, text_of, until_shown
from tests.tui.whole.states import OPTIONS, STATES, State

WIDE = (120, 40)
SIZES = ((45, 15), (80, 24), WIDE)
"""The widest last: its keys lead to the next screen."""


async def differs(pilot: Pilot[None], name: str) -> bool:
    """Compare the screen with its golden file once it is drawn; return whether they differ."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get(REWRITE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(await settled(pilot))
        return False
    golden = file.read_text() if file.exists() else None
    deadline = time.monotonic() + DRAWN_S
    await pilot.pause()
    while text_of(pilot) != golden and golden is not None and time.monotonic() < deadline:
        await pilot.pause(0.05)
    return text_of(pilot) != golden


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
async def test_screens_look_as_recorded(state: State) -> None:
    source = state.source()
    wrong: list[str] = []
    async with running(source, WIDE, options=OPTIONS) as pilot:
        if state.breaks:
            source.error = locked
            await pilot.press("p", "p")  # goes on, and reads again
            await until_shown(pilot, "These figures are from")
        for step in state.steps:
            await pilot.press(*step.keys)
            await until_shown(pilot, step.text)
            for size in SIZES:
                await pilot.resize_terminal(*size)
                name = f"{state.name}/{step.name}-{size[0]}x{size[1]}"
                if await differs(pilot, name):
                    wrong.append(name)
    assert not wrong, f"read them, and if they are right, run the test with {REWRITE}=1"


def test_every_golden_file_belongs_to_a_screen() -> None:
    recorded = {f"{file.parent.name}/{file.stem}" for state in STATES for file in (GOLDEN / state.name).glob("*.txt")}
    screens = {f"{state.name}/{step.name}-{w}x{h}" for state in STATES for step in state.steps for w, h in SIZES}
    assert recorded == screens
