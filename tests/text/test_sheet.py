"""Sheets as plain values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pertoken.text.sheet import Section, folded, label_width, laid_out, sheet


def test_a_section_without_lines_is_left_out() -> None:
    kept = Section("Price", (("usd", "1"),))
    assert sheet(Section("Fault", ()), kept) == (kept,)
    assert sheet() == ()


def test_labels_are_as_wide_as_the_longest_and_sentences_have_none() -> None:
    assert label_width(Section("Price", (("usd", "1"), "A sentence.", ("tokens", "2")))) == 6
    assert label_width(Section("Fault", ("A sentence.",))) == 0


def test_a_sheet_is_laid_out_in_lines_of_a_width_with_facts_before_sentences() -> None:
    section = Section("Power", ("Measured by the driver.", ("drawn", "512 W of 700 W"), ("limit", "700 W")))
    texts = ["".join(text for text, _ in line) for line in laid_out((section,), 22)]
    assert texts == [
        "Power",
        "  drawn  512 W of 700",
        "         W",
        "  limit  700 W",
        "  Measured by the",
        "  driver.",
        "",
    ]
    assert [kind for _, kind in laid_out((section,), 22)[1]] == ["text", "label", "text"]


@given(st.text(st.sampled_from("ab 漢\n"), max_size=60), st.integers(2, 20))
def test_folded_lines_fit_and_keep_every_character_that_is_no_space(text: str, width: int) -> None:
    lines = folded(text, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("  one two three", 11, ["  one two", "  three"]),
        (" 1. one two three", 13, [" 1. one two", "    three"]),
        ("-x one two", 8, ["-x one", "two"]),
        ("    one two", 9, ["    one", "two"]),  # no room for the indentation
    ],
)
def test_sentences_go_on_below_the_first_word_of_an_indented_text_or_list_item(
    text: str, width: int, lines: list[str]
) -> None:
    _, *shown, _ = laid_out(sheet(Section("T", (text,))), width)
    assert [line for ((line, _),) in shown] == [f"  {line}" for line in lines]
