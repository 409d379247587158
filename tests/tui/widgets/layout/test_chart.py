"""Chart in the lines that tables leave free."""

from pertoken.tui.widgets.layout import Chart
from tests.tui.reports import FixedSource
from tests.tui.screens import running, until, until_shown


async def test_the_chart_takes_what_the_tables_leave_free_and_no_more_than_it_needs() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await until_shown(pilot, "Generated tok/s of the fleet in the window: 0 to 1.62k")
        chart = pilot.app.screen.query_one(Chart)
        assert 3 <= chart.size.height <= 10
        await pilot.resize_terminal(120, 24)
        await until(pilot, lambda: "Generated tok/s" not in chart.screen._compositor.render_strips()[20].text, "space")


def test_few_lines_or_unknown_values_have_no_chart() -> None:
    chart = Chart("tok/s")
    assert chart.lines_of(20) == 0
    chart._values = lambda: (1.0, None)
    assert (chart.lines_of(3), chart.lines_of(4), chart.lines_of(50)) == (0, 3, 10)
