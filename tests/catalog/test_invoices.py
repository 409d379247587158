from pathlib import Path

from pertoken.catalog.invoices import format_of, formats, plain

PAGE = Path(__file__).parents[2] / "docs" / "reconcile.md"


def test_each_format_is_recognized_by_its_own_columns() -> None:
    for known in formats():
        assert format_of([name.upper() for name in known.columns]) == known
    assert format_of(["cost"]) is None and plain("Resource_Global_Name") == "resource.global.name"


def test_every_column_that_is_read_stands_in_the_documentation_with_its_source() -> None:
    page = plain(PAGE.read_text())
    for known in formats():
        assert plain(known.source) in page and plain(known.title) in page
        assert [name for name in known.columns if f"`{plain(name)}`" not in page] == []
