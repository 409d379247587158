"""Every screen in every state and size: full, empty, stale, failing, and with a thousand hosts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from textual.pilot import Pilot

from tests.tui.reports import BARE, CHAT, NOW, RICH, FixedSource, host, locked, use
from tests.tui.screens import check_golden, running, text_of, until
from tests.tui.studies import PLAN

SIZES = [(80, 24), (120, 40), (45, 15)]
WALK = (
    ("fleet", ("1",)),
    ("fleet-opened", ("enter",)),
    ("savings", ("escape", "2")),
    ("savings-opened", ("enter",)),
    ("not-evaluated", ("escape", "2", "tab")),
    ("plan", ("3",)),
    ("rules", ("4",)),
    ("rules-opened", ("enter",)),
    ("hours", ("escape", "h")),
    ("hours-opened", ("enter",)),
    ("keys", ("escape", "question_mark")),
)
"""Screens with the keys that lead there from the one before; what cannot be opened stays, with the reason."""
NOTHING = replace(PLAN, steps=(), left_out=(), bankable=(0, 0, 0), capacity=(0, 0, 0), sensitivity=())
MANY = tuple(host(n, f"gpu-{n:04}", age_s=4 if n % 97 else 75) for n in range(1, 1001))
USES = tuple(replace(use(each, (CHAT.model,), 8), util=each.host_id % 101 / 100) for each in MANY)


@dataclass(frozen=True, slots=True)
class State:
    """A source as it is first read, and what happens to it then."""

    source: Callable[[], FixedSource]
    later_s: float = 0.0
    fails: bool = False


STATES = {
    "full": State(FixedSource),
    "empty": State(lambda: FixedSource(BARE, (), day=(), planned=NOTHING)),
    "stale": State(FixedSource, later_s=240.0, fails=True),
    "failing": State(lambda: FixedSource(error=locked)),
    "thousand-hosts": State(lambda: FixedSource(replace(RICH, hosts=MANY, uses=USES, hints=()))),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
async def test_a_walk_through_all_screens_looks_as_recorded(state: str, size: tuple[int, int]) -> None:
    of, clock = STATES[state], [float(NOW)]
    source = of.source()
    async with running(source, size, now=lambda: clock[0]) as pilot:
        if of.fails:
            source.error = locked
        clock[0] += of.later_s
        for name, keys in WALK:
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            await settled(pilot)
            pilot.app.clear_notifications()
            await check_golden(pilot, f"states/{state}/{name}-{size[0]}x{size[1]}")


async def settled(pilot: Pilot[None]) -> None:
    """Wait until nothing is computed any more and the screen stays as it is."""
    shown = [""] * 5

    def still() -> bool:
        shown.append(text_of(pilot))
        return len(set(shown[-5:])) == 1 and not pilot.app.view().working  # type: ignore[attr-defined]

    await until(pilot, still, "a screen that stays")
