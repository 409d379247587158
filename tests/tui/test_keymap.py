"""Custom keys."""

import pytest

from pertoken.errors import BadInput
from pertoken.text.keys import KEY_OF
from pertoken.tui.options import Options, keymap_of, mapped
from tests.tui.reports import FixedSource
from tests.tui.screens import running, until_gone, until_shown


def test_a_key_may_be_a_letter_a_sign_or_a_name() -> None:
    assert keymap_of([("sort", "S"), ("jump", "ctrl+g"), ("filter", ";"), ("earlier", "f8"), ("plan", ",")]) == {
        "sort": "S",
        "jump": "ctrl+g",
        "filter": "semicolon",
        "earlier": "f8",
        "plan": "comma",
    }


def test_two_actions_may_change_their_keys() -> None:
    assert keymap_of([("sort", "p"), ("pause", "o")]) == {"sort": "p", "pause": "o"}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([("sort", "p")], "screens.keys: p is chosen for sort and is also the key of pause"),
        ([("sort", "f6"), ("pause", "f6")], "screens.keys: f6 is chosen for"),
        ([("srot", "f6")], "screens.keys: srot: no such action; did you mean sort?"),
        ([("quite\x1b", "f6")], r"quite\x1b: no such action"),
        ([("back", "f6")], "enter, escape and tab cannot be changed"),
        ([("sort", "enter")], "enter, escape and tab cannot be changed"),
    ],
)
def test_an_impossible_choice_is_one_clear_line(chosen: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(BadInput) as error:
        keymap_of(chosen)
    assert message.casefold() in str(error.value).casefold()
    assert "\n" not in str(error.value)


def test_the_table_shows_the_key_that_was_chosen() -> None:
    keys = {key.action: key for key in mapped({"sort": "f6"})}
    assert keys["sort"].shown.casefold() == "f6"
    assert keys["pause"] == KEY_OF["pause"]


async def test_the_chosen_key_works_shows_in_the_footer_and_the_old_one_does_not() -> None:
    async with running(FixedSource(), options=Options(keymap=keymap_of([("savings", "f6")]))) as pilot:
        await until_shown(pilot, "run/wait")
        await pilot.press("2")
        await until_shown(pilot, "run/wait")
        await until_shown(pilot, "f6 Savings")
        await pilot.press("f6")
        await until_shown(pilot, "bankable $/month")
        await pilot.press("question_mark")
        await until_gone(pilot, "bankable $/month")
        await until_shown(pilot, "f6      Show savings")
