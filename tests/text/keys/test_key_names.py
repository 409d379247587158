"""Names of keys in messages."""

import pytest

from pertoken.text.keys import KEYS, with_keys
from pertoken.tui.options import Options, keymap_of
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until_shown

CHOSEN = {"savings": "f6", "fleet": "f5", "plan": "f7", "pause": "f8", "group": "f9", "hours": "f10"}


@pytest.mark.parametrize("key", [key for key in KEYS if key.elsewhere], ids=lambda key: key.action)
def test_each_reason_of_the_table_names_keys(key: object) -> None:
    assert "{" not in with_keys(key.elsewhere)  # type: ignore[attr-defined]


async def test_messages_name_the_keys_that_a_person_chose() -> None:
    async with running(FixedSource(), options=Options(keymap=keymap_of(CHOSEN.items()))) as pilot:
        await pilot.press("a", "e", "escape")
        shown = await notices(pilot)
        assert shown[0] == "This key is for a recommendation: press f6 and choose one."
        assert shown[1] == "This key is for the plan: press f7."
        assert shown[2] == "There is nothing to go back to: f5 to 4 and f10 change screens, q quits."
        await pilot.press("f8")
        await until_shown(pilot, "PAUSED, f8 goes on")
        await pilot.press("left_square_bracket")
        assert (await notices(pilot))[-1] == "The figures are frozen: press f8 to go on, then change the window."
        await pilot.press("f9")
        await until_shown(pilot, "By host. f9: by tenant, then by model.")
    assert with_keys("{savings}") == "2"
