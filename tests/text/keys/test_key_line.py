"""Keys in the last line of a screen."""

from hypothesis import given
from hypothesis import strategies as st

from pertoken.text.keys import KEYS, fitting, items

FLEET = ("savings", "plan", "rules", "open", "filter", "group", "narrow", "widen", "keys", "quit")


def words(width: int) -> list[str]:
    return [item.word for item in fitting(items(FLEET, {}), width)]


def test_neighbours_with_one_word_are_one_item() -> None:
    assert items(("narrow", "widen"), {})[0].labels == ("[", "]")
    assert items(("open", "back"), {"open": "Confirm"})[0].word == "Confirm"


def test_a_narrow_screen_keeps_help_quit_and_the_first_keys() -> None:
    assert words(80) == ["Savings", "Plan", "Rules", "Open", "Filter", "Group", "Window", "Keys", "Quit"]
    assert words(45) == ["Savings", "Plan", "Open", "Keys", "Quit"]
    assert words(14) == ["Keys", "Quit"]


@given(st.lists(st.sampled_from([key.action for key in KEYS if key.footer]), unique=True), st.integers(0, 150))
def test_keys_never_take_more_than_the_width(actions: list[str], width: int) -> None:
    shown = fitting(items(actions, {}), width)
    assert sum(item.cells + 1 for item in shown) <= width + 1
