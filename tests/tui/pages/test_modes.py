import subprocess
import sys

import pytest

from pertoken.tui.pages.modes import LATER, MODES, page_of, preparation
from pertoken.tui.pages.page import Page
from tests.tui.reports import FixedSource
from tests.tui.screens import running

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


async def test_pages_are_laid_out_and_drawn_before_they_are_shown() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        app = pilot.app
        for step in preparation(app, app._keys_page):  # type: ignore[attr-defined]
            step()
            await pilot.pause()
        assert app.screen is app._screen_stacks["fleet"][0]
        savings = app._screen_stacks["savings"][0]
        assert "Open" in "".join(strip.text for strip in savings._compositor.render_strips())
        assert all(rows.size.width == 120 for rows in savings.query("#open"))


async def test_steps_do_nothing_while_the_app_ends() -> None:
    async with running(FixedSource()) as pilot:
        steps = preparation(pilot.app, pilot.app._keys_page)  # type: ignore[attr-defined]
    for step in steps[: len(MODES)]:
        step()
    assert set(pilot.app._screen_stacks) <= {"_default", "fleet"}
