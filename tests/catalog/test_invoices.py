from pathlib import Path

from pertoken.catalog.invoices import format_of, formats, plain

PAGE = Path(__file__).parents[2] / "docs" / "reconcile.md"


def test_each_format_is_recognized_by_its_own_columns() -> None:
    for known in formats():
        assert format_of([name.upper() for name in known.columns]) == known
    assert format_of(["cost"]) is None and plain("Resource.Global_Name") == "resourceglobalname"


def test_every_column_that_is_read_stands_in_the_documentation_with_its_source() -> None:
    page = PAGE.read_text()
    named = {plain(name) for name in page.split("`")[1::2]}
    for known in formats():
        assert known.source in page and known.title in page
        assert [name for name in known.columns if plain(name) not in named] == []
