from hypothesis import given
from hypothesis import strategies as st

from pertoken.tui.widgets.key_bar import ALWAYS, Entry, fitted
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_gone, until_shown


def entry(action: str, shown: str, word: str) -> Entry:
    return Entry((action,), (shown,), (shown,), word)


def test_a_narrow_line_keeps_help_and_quit_and_what_else_fits() -> None:
    entries = [entry("fleet", "1", "Fleet"), entry("open", "enter", "Open"), entry("keys", "?", "Keys")]
    entries += [entry("quit", "q", "Quit")]
    assert fitted(entries, 80) == entries
    assert [e.word for e in fitted(entries, 25)] == ["Fleet", "Keys", "Quit"]
    assert [e.word for e in fitted(entries, 13)] == ["Keys", "Quit"]
    assert fitted(entries, 5) == []


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=9)), max_size=12), st.integers(0, 90))
def test_the_line_is_never_wider_than_its_space(words: list[tuple[str, str]], width: int) -> None:
    entries = [entry(f"a{i}", *pair) for i, pair in enumerate(words)]
    shown = fitted(entries, width)
    assert sum(e.cells for e in shown) + max(0, len(shown) - 1) <= width


def test_a_click_on_one_of_two_keys_presses_that_key() -> None:
    both = Entry(("earlier", "later"), ("comma", "full_stop"), (",", "."), "Step")
    assert [both.key_at(cell) for cell in range(4)] == ["comma", "full_stop", "comma", "comma"]


async def test_the_line_has_help_and_quit_at_45_columns_and_a_click_opens_the_help() -> None:
    async with running(FixedSource(), (45, 15)) as pilot:
        await until_shown(pilot, "? Keys q Quit")
        line = text_of(pilot).splitlines()[-1]
        await pilot.click("KeyBar", offset=(line.index("? Keys") + 2, 0))
        await until_shown(pilot, "Show the fleet. What runs now")
        await pilot.press("escape")
        await until_gone(pilot, "Show the fleet. What runs now")


def test_help_and_quit_are_actions() -> None:
    from pertoken.tui.keys import KEY_OF

    assert set(ALWAYS) <= set(KEY_OF)
