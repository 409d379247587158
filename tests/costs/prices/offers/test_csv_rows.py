from pathlib import Path

import pytest

from pertoken.costs.prices.offers import csv_rows
from pertoken.errors import BadInput


def test_rows_have_the_names_of_the_header() -> None:
    assert csv_rows(Path("f.csv"), "a,b\n1,\n") == [{"a": "1", "b": ""}]


def test_a_broken_line_is_named() -> None:
    with pytest.raises(BadInput, match=r"f\.csv: line 2: not valid CSV"):
        csv_rows(Path("f.csv"), 'a,b\n"1"x,2\n')
