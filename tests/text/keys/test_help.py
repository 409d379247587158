"""The help page."""

from pertoken.text.keys import KEYS, help_sheet
from pertoken.text.sheet import text_of
from pertoken.tui.options import keymap_of, mapped


def test_it_shows_keys_of_a_persons_own_and_that_there_is_no_network_call() -> None:
    text = text_of(help_sheet(mapped(keymap_of([("sort", "f6")]))))
    assert "f6" in text.casefold()
    assert "no network call of their own" in text


def test_it_lists_every_key() -> None:
    text = text_of(help_sheet(KEYS))
    assert all(f"{key.command}. {key.help}" in text for key in KEYS)
