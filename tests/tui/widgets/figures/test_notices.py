"""Notices, hidden while there are none."""

from dataclasses import replace

from pertoken.tui.widgets.figures import Notices
from tests.tui.reports import RICH, FixedSource
from tests.tui.screens import running, text_of, until, until_shown


async def test_hints_take_no_lines_once_there_are_none() -> None:
    source = FixedSource()
    async with running(source, (120, 40), refresh_s=0.05) as pilot:
        await until_shown(pilot, "→ ")
        hints = pilot.app.screen.query_one("#hints", Notices)
        assert hints.size.height > 0
        source.report = replace(RICH, hints=())
        await until(pilot, lambda: hints.size.height == 0, "room for the rest")


async def test_hints_that_do_not_fit_end_at_a_word_with_an_ellipsis() -> None:
    hints = ("power of the first device cannot be read " * 5, "x" * 300)
    async with running(FixedSource(report=replace(RICH, hints=hints)), (80, 24)) as pilot:
        await until_shown(pilot, "→ power")
        shown = pilot.app.screen.query_one("#hints", Notices)
        await until(pilot, lambda: " …" in text_of(pilot), "an ellipsis")
        assert shown.size.height == 2 and not shown.allow_vertical_scroll
        rows = [line.strip() for line in text_of(pilot).splitlines()]
        begin = next(n for n, line in enumerate(rows) if line.startswith("→ power"))
        words = " ".join(rows[begin : begin + 2])
        assert words.endswith(" …") and set(words.split()) == {"→", "…", *hints[0].split()}
