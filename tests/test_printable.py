"""Text of others as it may be printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.printable import acts, csv_cell, literal, literal_lines, paragraphs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("Größe 80 GB – ☃", "Größe 80 GB – ☃"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("one\ntwo", "one\\ntwo"),
        ("\u202eleft", "\\u202eleft"),
        ("broken \udcff byte", "broken \\xff byte"),
    ],
)
def test_control_characters_are_written_out_and_all_others_stay(text: str, shown: str) -> None:
    assert literal(text) == shown


@given(st.text(st.characters()))
def test_nothing_in_a_literal_acts(text: str) -> None:
    shown = literal(text)
    assert not any(map(acts, shown))
    assert literal(shown) == shown


@pytest.mark.parametrize("start", "=+-@")
def test_a_cell_is_no_formula(start: str) -> None:
    assert csv_cell(f"{start}1+1") == f"'{start}1+1"
    assert csv_cell("1+1") == "1+1"


def test_lines_stay_lines_and_tabs_become_spaces() -> None:
    assert literal_lines("a\tb\nc\rd") == ("a   b", "c\\rd")


def test_lines_of_a_paragraph_and_of_a_list_item_are_joined_and_code_is_not() -> None:
    text = "One\ntwo.\n\n1. First\n   goes on.\n2. Second.\n- Third\n\n    a = 1\n    b = 2\nAfter\nit."
    joined = "One two.\n\n1. First goes on.\n2. Second.\n- Third\n\n    a = 1\n    b = 2\nAfter it."
    assert paragraphs(text) == joined
    assert paragraphs(joined) == joined
