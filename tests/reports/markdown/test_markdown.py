from pathlib import Path

from pertoken.reports.markdown import markdown, plain
from tests.reports.builders import figures


def test_markdown_has_each_table_and_no_name_in_it_acts(tmp_path: Path) -> None:
    text = markdown(figures(tmp_path / "db"))
    assert text.startswith("# What our tokens cost\n") and "## Chargeback by tenant" in text
    assert "| together | $82.56 | 100.0% |  |  |" in text
    assert "<script>" not in text and "\x1b" not in text
    assert plain("a|b*c<d>") == r"a\|b\*c\<d\>"
