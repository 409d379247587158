"""Every key of the table is pressed on a screen that has it, and shows what it does."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot

from pertoken.tui.keys import KEYS
from pertoken.tui.widgets.filter_box import FilterBox
from pertoken.tui.widgets.moment_box import MomentBox
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until, until_shown

Shows = str | Callable[[Pilot[None]], bool]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a key leads to, after the keys of `before`, each with a text by which its screen is there."""

    shows: Shows
    before: tuple[tuple[str, str], ...] = ()


def focused(name: str) -> Shows:
    return lambda pilot: pilot.app.focused is not None and pilot.app.focused.id == name


SAVINGS = (("2", "Serve FP8"),)
PLAN = (("3", "Least certain"),)
RULES = (("4", "use-spot"),)
OPENED = (*SAVINGS, ("enter", "Worth, per month"))
EFFECTS: dict[str, Effect] = {
    "fleet": Effect("run/wait", SAVINGS),
    "savings": Effect("bankable $/month"),
    "plan": Effect("Least certain"),
    "rules": Effect("use-spot"),
    "hours": Effect("by hour"),
    "open": Effect("Where a dollar goes"),
    "back": Effect("run/wait", (("enter", "Where a dollar goes"),)),
    "next": Effect(focused("devices")),
    "filter": Effect(lambda pilot: pilot.app.screen.query_one(FilterBox).display),
    "sort": Effect("▲"),
    "reverse": Effect("▼", (("o", "▲"),)),
    "accept": Effect("Accept", OPENED),
    "snooze": Effect("Snooze", OPENED),
    "dismiss": Effect("Dismiss", OPENED),
    "reopen": Effect("bring", OPENED),
    "applied": Effect("applied", OPENED),
    "undo": Effect("undo", OPENED),
    "copy": Effect("Copied", OPENED),
    "copy_all": Effect("Copied", OPENED),
    "assume": Effect("An empty line", PLAN),
    "toggle": Effect("[ ]", (*PLAN, ("down", "Least certain"))),
    "move_up": Effect("[x]", (*PLAN, ("down", "Least certain"))),
    "move_down": Effect("[x]", PLAN),
    "export": Effect("Export the plan", PLAN),
    "reload": Effect("Least certain", PLAN),
    "pause": Effect("PAUSED"),
    "narrow": Effect(" in 15m"),
    "widen": Effect(" in 6h"),
    "group": Effect("By host"),
    "earlier": Effect("REPLAY"),
    "later": Effect("live", (("comma", "REPLAY"),)),
    "event_before": Effect("to 2027-01-15 07:57Z"),
    "event_after": Effect("to 2027-01-15 07:57Z", (("comma", "REPLAY"), ("less_than_sign", "07:06Z"))),
    "moment": Effect(lambda pilot: pilot.app.screen.query_one(MomentBox).display),
    "now": Effect("live", (("comma", "REPLAY"),)),
    "keys": Effect("Show the fleet"),
    "palette": Effect(lambda pilot: isinstance(pilot.app.screen, CommandPalette)),
    "suspend": Effect("no shell"),
    "quit": Effect(lambda pilot: not pilot.app.is_running),
}


def test_every_key_of_the_table_has_its_test() -> None:
    assert set(EFFECTS) == {key.action for key in KEYS}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.action)
async def test_a_key_does_what_the_table_says(key: object) -> None:
    from pertoken.tui.keys import Key

    assert isinstance(key, Key)
    effect = EFFECTS[key.action]
    async with running(FixedSource(), (110, 36)) as pilot:
        await until_shown(pilot, "run/wait")
        for before, text in effect.before:
            await pilot.press(before)
            await until_shown(pilot, text)
        await pilot.press(key.key)
        shows = effect.shows
        await until(pilot, lambda: shows in said(pilot) if isinstance(shows, str) else shows(pilot), repr(shows))


def said(pilot: Pilot[None]) -> str:
    """What is on the screen, and what was notified."""
    return "\n".join((text_of(pilot), *(each.message for each in pilot.app._notifications)))
