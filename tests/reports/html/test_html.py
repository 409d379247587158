import re
from pathlib import Path

import pytest

from pertoken.reports.html import page
from tests.browser import CHROMIUM, DRIVER, chromium
from tests.reports.builders import figures


def test_a_page_is_the_same_each_time_and_names_no_address(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    text = page(report)
    assert text == page(report)
    assert "<script" not in text and "alert(1)" in text, "hostile names are shown, not run"
    assert not re.search(r"\b(?:src|href)=|url\(|@import|https?:", text)
    assert "default-src &#x27;none&#x27;" in text
    assert "No device has a price" in page(figures(tmp_path / "other", None))


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromium-driver")
def test_a_browser_shows_the_page_without_a_request(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(figures(tmp_path / "db")), encoding="utf-8")
    with chromium(tmp_path) as window:
        window.open(file.as_uri())
        assert window.run("return performance.getEntriesByType('resource').length") == 0
        assert window.run("return document.querySelectorAll('script').length") == 0
        assert window.run("return document.querySelectorAll('svg').length") == 4
        assert "$19.11" in window.run("return document.body.innerText")
        wide = window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, "nothing is wider than the window"
