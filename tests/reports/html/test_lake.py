from pertoken.lake.questions import Coverage
from pertoken.reports.html import MAX_ROWS, lake_html, lake_markdown
from pertoken.text.lake import LakeTable

HOSTILE = '<script>alert(1)</script>|`"\x1b[31m'
COVERAGE = Coverage(("eu-1",), 1, 1_789_956_000, ())


def test_names_of_any_kind_are_text_in_html_and_markdown() -> None:
    tables = [LakeTable("Dollars by model", [{"model": HOSTILE, "nano_usd": 10**9}])]
    page, text = lake_html("lake:/x", tables, COVERAGE), lake_markdown("lake:/x", tables, COVERAGE)
    assert "<script" not in page and "\\<script" in text and "\x1b" not in page + text
    assert "$1.00" in page and "$1.00" in text


def test_long_tables_are_cut_with_the_number_that_is_left_out() -> None:
    rows = [{"model": f"m{n}", "nano_usd": n} for n in range(MAX_ROWS + 7)]
    assert "and 7 more" in lake_markdown("lake:/x", [LakeTable("Dollars by model", rows)], COVERAGE)
