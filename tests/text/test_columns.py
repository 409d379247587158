from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pertoken.text.columns import GAP, Column, arranged, cut, fit

Row = tuple[str, float | None]
NAME: Column[Row] = Column("name", lambda row: row[0], 0, min_cells=4)
SIZE: Column[Row] = Column("size", lambda row: "–" if row[1] is None else f"{row[1]:.0f}", 1, lambda row: row[1])
EMPTY: Column[Row] = Column("empty", lambda row: "", 0)
COLUMNS = (NAME, SIZE, EMPTY)
ROWS: list[Row] = [("beta", 2.0), ("Alpha beta", None), ("gamma", 30.0)]


def cells(rows: list[Row]) -> list[list[str]]:
    return [[column.text(row) for column in COLUMNS] for row in rows]


def test_a_column_with_nothing_in_it_is_left_out() -> None:
    assert fit(cells(ROWS), COLUMNS, 80) == {0: 10, 1: 4}


def test_a_narrow_table_cuts_before_it_drops_and_keeps_one_column() -> None:
    assert fit(cells(ROWS), COLUMNS, 14) == {0: 6, 1: 4}
    assert fit(cells(ROWS), COLUMNS, 9) == {0: 7}
    assert fit(cells(ROWS), COLUMNS, 1) == {0: 1}


def test_the_first_column_is_cut_last() -> None:
    where: Column[Row] = Column("where", lambda row: "in the second hall, to the left", 1, min_cells=6)
    assert fit([["Alpha beta", "in the second hall, to the left"]], (NAME, where), 22) == {0: 10, 1: 8}
    assert fit([["Alpha beta", "in the second hall, to the left"]], (NAME, where), 16) == {0: 6, 1: 6}


def test_a_name_is_cut_below_its_least_before_the_last_figure_beside_it_is_dropped() -> None:
    name: Column[Row] = Column("name", lambda row: row[0], 0, min_cells=20)
    row = ["Release the idle device", "$1,200–1,640"]
    assert fit([row], (name, SIZE), 32) == {0: 16, 1: 12}
    assert fit([row], (name, SIZE), 28) == {0: 12, 1: 12}
    assert fit([row], (name, SIZE), 27) == {0: 23}


@given(st.integers(3, 60), st.lists(st.tuples(st.text(max_size=30), st.none() | st.floats(0, 1e6)), min_size=1))
def test_columns_that_fit_never_exceed_the_width(width: int, rows: list[Row]) -> None:
    widths = fit(cells(rows), COLUMNS, width)
    assert sum(widths.values()) + GAP * len(widths) <= width or widths == {0: 1} or not widths


@given(st.lists(st.text(), min_size=1, max_size=5), st.integers(1, 40))
def test_a_cut_cell_has_exactly_its_width(texts: list[str], width: int) -> None:
    assert {cell_len(text) for text in cut(texts, width, NAME)} == {width}
    assert {cell_len(text) for text in cut(texts, width, Column("end", str, 0, keep_end=True))} == {width}


def test_a_cut_keeps_the_end_that_is_more_specific() -> None:
    assert cut(["abcdef"], 4, NAME) == ["abc…"]
    assert cut(["abcdef"], 4, Column("end", str, 0, keep_end=True)) == ["…def"]
    assert cut(["7"], 4, SIZE) == ["   7"]


def test_rows_sort_by_number_from_the_largest_and_by_text_from_a() -> None:
    assert [row[0] for row in arranged(ROWS, COLUMNS, "size", False)] == ["gamma", "beta", "Alpha beta"]
    assert [row[0] for row in arranged(ROWS, COLUMNS, "size", True)] == ["beta", "gamma", "Alpha beta"]
    assert [row[0] for row in arranged(ROWS, COLUMNS, "name", False)] == ["Alpha beta", "beta", "gamma"]
    assert arranged(ROWS, COLUMNS, None, False) == ROWS


def test_names_sort_with_their_numbers_by_value() -> None:
    rows: list[Row] = [(name, None) for name in ("Host-10", "host-2", "host-02b", "host", "9" * 5000)]
    assert [row[0][:8] for row in arranged(rows, COLUMNS, "name", False)] == [
        "99999999",
        "host",
        "host-2",
        "host-02b",
        "Host-10",
    ]


def test_sentences_are_cut_at_their_end_even_where_they_look_alike_then() -> None:
    column: Column[str] = Column("why", str, 0, keep_start=True)
    assert cut(["it is not known a", "it is not known b"], 10, column) == ["it is not…", "it is not…"]
