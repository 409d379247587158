"""Every key of the table, pressed on a screen where it does something."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot

from pertoken.proof.recommendation import State
from pertoken.text.keys import KEYS, Key
from pertoken.tui.pages.decision_page import DecisionPage
from pertoken.tui.widgets.boxes import FilterBox, JumpBox, MomentBox
from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FP8, QUANTIZE, FixedSource
from tests.tui.screens import running, text_of, until, until_shown

Shows = str | Callable[[Pilot[None]], bool]


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of a key after the keys of `before`, each with a text that its screen shows."""

    shows: Shows
    before: tuple[tuple[str, str], ...] = ()
    state: State = State.OPEN
    """State of the recommendation that the key acts on."""


def focused(name: str) -> Shows:
    return lambda pilot: pilot.app.focused is not None and pilot.app.focused.id == name


def cursor(row: int) -> Shows:
    """Return a condition: the cursor of the focused table is on a row."""
    return lambda pilot: isinstance(pilot.app.focused, Rows) and pilot.app.focused.cursor_row == row


def confirming(pilot: Pilot[None]) -> bool:
    """Return whether a decision waits to be confirmed."""
    return isinstance(pilot.app.screen, DecisionPage)


SAVINGS = (("2", "Serve FP8"),)
PLAN = (("3", "Least certain"),)
RULES = (("4", "use-spot"),)
OPENED = (*SAVINGS, ("enter", "How much a month"))
WITH_COMMANDS = (*SAVINGS, ("down", "Serve FP8"), ("enter", "How much a month"))
DECIDED = (("2", "Decided (1)"), ("tab", "Serve FP8"))
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
    "accept": Effect(confirming, OPENED),
    "trial": Effect(confirming, OPENED),
    "snooze": Effect(confirming, OPENED),
    "dismiss": Effect(confirming, OPENED),
    "reopen": Effect(confirming, DECIDED, State.ACCEPTED),
    "applied": Effect(confirming, OPENED),
    "undo": Effect(confirming, DECIDED, State.APPLIED),
    "copy": Effect("Copied 1 of 2", WITH_COMMANDS),
    "copy_all": Effect("# undo", WITH_COMMANDS),
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
    "bottom": Effect(cursor(4), (("tab", "run/wait"),)),
    "down": Effect(cursor(1), (("tab", "run/wait"),)),
    "up": Effect(cursor(0), (("tab", "run/wait"), ("j", "run/wait"))),
    "columns": Effect("Columns"),
    "events": Effect("Events"),
    "price": Effect("an hour", (("tab", "run/wait"), ("G", "run/wait"))),
    "jump": Effect(lambda pilot: bool(pilot.app.screen.query(JumpBox))),
    "settings": Effect("borders"),
    "dump": Effect("Wrote "),
    "pager": Effect("pager"),
    "earlier": Effect("REPLAY"),
    "later": Effect("live", (("comma", "REPLAY"),)),
    "event_before": Effect("to 2027-01-15 07:57Z"),
    "event_after": Effect("to 2027-01-15 07:57Z", (("comma", "REPLAY"), ("less_than_sign", "07:06Z"))),
    "moment": Effect(lambda pilot: bool(pilot.app.screen.query(MomentBox))),
    "now": Effect("live", (("comma", "REPLAY"),)),
    "keys": Effect("Show the fleet"),
    "palette": Effect(lambda pilot: isinstance(pilot.app.screen, CommandPalette)),
    "suspend": Effect("no shell"),
    "quit": Effect(lambda pilot: not pilot.app.is_running),
}


def test_every_key_of_the_table_has_its_test() -> None:
    assert set(EFFECTS) == {key.action for key in KEYS}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.action)
async def test_a_key_has_the_effect_that_the_table_describes(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where screens are saved
    effect = EFFECTS[key.action]
    source = FixedSource()
    if effect.state is not State.OPEN:
        source.recommendations = (replace(QUANTIZE, state=effect.state, estimate=FP8, variant=FP8.key),)
    async with running(source, (110, 36)) as pilot:
        await until_shown(pilot, "run/wait")
        for before, text in effect.before:
            await pilot.press(before)
            await until_shown(pilot, text)
        await pilot.press(key.key)
        shows = effect.shows
        await until(pilot, lambda: shows in all_text(pilot) if isinstance(shows, str) else shows(pilot), repr(shows))


def all_text(pilot: Pilot[None]) -> str:
    """Return the text on the screen, in the clipboard and in notifications."""
    return "\n".join(
        (text_of(pilot), pilot.app.clipboard, *(notification.message for notification in pilot.app._notifications))
    )
