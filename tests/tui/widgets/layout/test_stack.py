from hypothesis import given
from hypothesis import strategies as st

from pertoken.tui.widgets.layout import shares
from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FixedSource
from tests.tui.screens import running, until


def test_tables_share_a_height_and_the_last_are_hidden_if_it_is_too_small() -> None:
    assert shares([4, 6, 3], 20) == [4, 6, 3]
    assert shares([10, 3], 8) == [5, 3]
    assert shares([10, 10], 9) == [5, 4]
    assert shares([10, 10, 10], 5) == [3, 2, 0]
    assert shares([0, 5], 3) == [0, 3]
    assert shares([5], 1) == [0]


@given(st.lists(st.integers(0, 50), max_size=4), st.integers(0, 60))
def test_tables_never_take_more_than_the_height(wanted: list[int], height: int) -> None:
    given_ = shares(wanted, height)
    assert sum(given_) <= height
    assert all(got <= lines for got, lines in zip(given_, wanted, strict=True))


async def test_the_focus_moves_to_a_table_that_is_shown_when_a_smaller_terminal_hides_its_own() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one("#hosts", Rows).shown_lines == 3, "three tables")
        screen.query_one("#hosts", Rows).focus()
        await until(pilot, lambda: screen.focused is screen.query_one("#hosts"), "the focus")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: screen.focused is screen.query_one("#deployments"), "another focus")
        assert screen.query_one("#hosts") not in screen.focus_chain
