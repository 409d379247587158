"""Plot of a panel."""

from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_shown


async def test_a_gap_of_a_line_stays_blank_and_changes_are_upright_lines() -> None:
    async with running(FixedSource(), (80, 40)) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "Tokens, tok/s")
        await until_shown(pilot, "07:59")
        lines = text_of(pilot).splitlines()
        first = next(n for n, line in enumerate(lines) if "Tokens, tok/s" in line)
        plot = lines[first + 2 : first + 7]
        assert all(line[28:33].strip(" │") == "" for line in plot), "18 to 24 of 60 minutes were not observed"
        assert sum(line.count("│") for line in plot) >= 3 * len(plot), "an edge and two changes"
