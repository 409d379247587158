from pathlib import Path

from pertoken.catalog.invoices import format_of, formats, plain

PAGE = Path(__file__).parents[2] / "docs" / "reconcile.md"


def test_each_format_is_recognized_by_its_own_columns() -> None:
    for each in formats():
        assert format_of([name.upper() for name in each.columns]) == each
    assert format_of(["cost"]) is None and plain("Resource_Global_Name") == "resource.global.name"


def test_every_column_that_is_read_stands_in_the_documentation_with_its_source() -> None:
    page = plain(PAGE.read_text())
    for each in formats():
        assert plain(each.source) in page and plain(each.title) in page
        assert [name for name in each.columns if f"`{plain(name)}`" not in page] == []
