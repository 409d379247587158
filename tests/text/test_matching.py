"""Filters: words, their inverse, and letters in order."""

from pertoken.text.columns import Column, matching, nothing_matches
from pertoken.text.columns import kept as kept_sentence

ROWS = [("Alpha beta", "vllm"), ("alpha gamma", "sglang"), ("Llama-3.1-70B", "vllm")]
COLUMNS: tuple[Column[tuple[str, str]], ...] = (
    Column("name", lambda row: row[0], 0),
    Column("engine", lambda row: row[1], 1),
)


def kept(text: str) -> list[str]:
    return [row[0] for row in matching(ROWS, COLUMNS, text)]


def test_every_word_must_be_there_in_any_case_and_any_column() -> None:
    assert kept("BETA alp") == ["Alpha beta"]
    assert kept("vllm al") == ["Alpha beta"]
    assert matching(ROWS, COLUMNS, " ") == ROWS


def test_the_inverse_leaves_out_what_holds_any_of_the_words() -> None:
    assert kept("!vllm") == ["alpha gamma"]
    assert kept("!beta gamma") == ["Llama-3.1-70B"]


def test_a_mark_without_a_word_filters_nothing() -> None:
    assert matching(ROWS, COLUMNS, "!") == ROWS
    assert matching(ROWS, COLUMNS, "~ ") == ROWS


def test_fuzzy_wants_the_letters_of_a_word_in_order_in_one_cell() -> None:
    assert kept("~lm70") == ["Llama-3.1-70B"]
    assert kept("~07ml") == []
    assert kept("~abt") == ["Alpha beta"]


def test_the_sentence_fits_the_way_of_the_filter_and_is_literal() -> None:
    assert nothing_matches("a b") == "No row contains every word of “a b”: esc drops the filter."
    assert nothing_matches("!a").startswith("Every row contains a word of “a”")
    assert nothing_matches("~a\x1b").startswith(r"No row has the letters of “a\x1b”")


def test_a_kept_filter_is_named_with_its_rows_and_the_keys_that_change_it() -> None:
    assert kept_sentence(" !a{b}\x1b ", 3, 12) == r"/!a{b}\x1b keeps 3 of 12 rows: esc drops it, / edits it."


def test_no_filter_reads_the_bars_of_a_plot() -> None:
    plot: Column[tuple[str, str]] = Column("course", lambda _: "beta 9", 2, is_plot=True)
    assert [row[0] for row in matching(ROWS, (*COLUMNS, plot), "beta")] == ["Alpha beta"]
