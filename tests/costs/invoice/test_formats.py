from pathlib import Path

from pertoken.costs.invoice.read import column_key, format_of, formats

PAGE = Path(__file__).parents[3] / "docs" / "reconcile.md"


def test_each_format_is_recognized_by_its_own_columns() -> None:
    for known in formats():
        assert format_of([name.upper() for name in known.columns]) == known
    assert format_of(["cost"]) is None and column_key("Resource.Global_Name") == "resourceglobalname"


def test_every_column_that_is_read_stands_in_the_documentation_with_its_source() -> None:
    page = PAGE.read_text()
    named = {column_key(name) for name in page.split("`")[1::2]}
    for known in formats():
        assert known.source in page and known.title in page
        assert [name for name in known.columns if column_key(name) not in named] == []
