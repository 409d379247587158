import subprocess
import sys

import pytest

from pertoken.tui.pages.modes import LATER, MODES, page_of
from pertoken.tui.pages.page import Page

LOADED = """
import sys
from pertoken.tui.pages.modes import LATER
print([name for name in LATER if f"pertoken.tui.pages.{name}" in sys.modules])
"""


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_a_page_with_its_title(mode: str) -> None:
    page = page_of(mode, lambda: None, lambda: (), lambda: ())  # type: ignore[arg-type, return-value]
    assert isinstance(page, Page) and type(page).__name__ == f"{mode.capitalize()}Page"


def test_pages_are_imported_only_when_they_are_shown() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert {f"{mode}_page" for mode in MODES} - {"fleet_page"} <= set(LATER)
