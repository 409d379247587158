"""Sheets as plain values."""

from pertoken.tui.text.sheet import Section, label_width, sheet


def test_a_section_without_lines_is_left_out() -> None:
    kept = Section("Price", (("usd", "1"),))
    assert sheet(Section("Fault", ()), kept) == (kept,)
    assert sheet() == ()


def test_labels_are_as_wide_as_the_longest_and_sentences_have_none() -> None:
    assert label_width(Section("Price", (("usd", "1"), "A sentence.", ("tokens", "2")))) == 6
    assert label_width(Section("Fault", ("A sentence.",))) == 0
