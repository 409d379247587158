"""Keys, pointer and start of the app."""

import sys
from subprocess import run

from textual.events import MouseMove

from pertoken.tui.pages.modes import LATER
from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_shown


async def test_a_pointer_that_passes_by_draws_nothing_and_a_click_opens() -> None:
    async with running(FixedSource(), (100, 30)) as pilot:
        await until_shown(pilot, "run/wait")
        await pilot.pause()
        drawn: list[object] = []
        display = pilot.app._display

        def counted(screen: object, renderable: object) -> None:
            drawn.append(renderable)
            display(screen, renderable)  # type: ignore[arg-type]

        pilot.app._display = counted  # type: ignore[method-assign]
        for y in range(30):  # as a driver hands them over
            pilot.app.post_message(MouseMove(None, 5, y, 0, 1, 0, False, False, False, 5, y))
        await pilot.pause()
        assert drawn == []
        await pilot.click("#deployments", (5, 2))
        await until_shown(pilot, "Where a dollar goes")
        assert "llama.cpp on gpu-b" in text_of(pilot)
        await pilot.press("escape")
        await until_shown(pilot, "run/wait")
        await pilot.click("#deployments", (5, 0))
        await until_shown(pilot, "model▲")


async def test_rows_and_pages_are_walked_with_j_k_g_and_capital_g() -> None:
    async with running(FixedSource(), (100, 30)) as pilot:
        await until_shown(pilot, "run/wait")
        rows = pilot.app.screen.query_one("#deployments", Rows)
        await pilot.press("G")
        assert rows.cursor_row == 2
        await pilot.press("k")
        assert rows.cursor_row == 1
        await pilot.press("2", "G", "j")
        tables = pilot.app.screen.query_one("#open", Rows)
        assert tables.cursor_row == 2
        await pilot.press("g")
        assert tables.cursor_row == 0
        await pilot.press("question_mark", "G")
        await until_shown(pilot, "They never run a command")
        await pilot.press("g")
        await until_shown(pilot, "Show the fleet")


async def test_the_events_are_a_page_and_the_footer_follows_a_replay() -> None:
    async with running(FixedSource(), (100, 30)) as pilot:
        await until_shown(pilot, "g Group")
        await pilot.press("E")
        await until_shown(pilot, "Qwen/Qwen3-8B restarted on gpu-b")
        await pilot.press("escape", "comma")
        await until_shown(pilot, ",. Step")
        await until_shown(pilot, "<> Event")
        await pilot.press("n")
        await until_shown(pilot, "g Group")


def test_the_plain_summary_needs_no_terminal_library() -> None:
    code = "import pertoken.text.summary, pertoken.text.keys, sys; sys.exit('textual' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_app_is_imported_without_the_database_the_plots_and_the_other_screens() -> None:
    code = "import sys, pertoken.tui.app; print(*sys.modules)"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {"sqlalchemy", "numpy", "plotext", "pertoken.advisor"} & loaded
    assert not {f"pertoken.tui.pages.{name}" for name in LATER} & loaded
