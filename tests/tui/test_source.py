"""Readings of a source: a part that fails keeps its last value."""

from tests.tui.reports import NOW, FixedSource, locked
from tests.tui.screens import running, text_of, until_gone, until_shown


async def test_a_failing_database_keeps_the_last_figures_under_a_banner_with_their_age() -> None:
    source, clock = FixedSource(), [float(NOW)]
    async with running(source, refresh_s=0.05, clock=lambda: clock[0]) as pilot:
        await until_shown(pilot, "70B-Instruct")
        source.error = locked
        clock[0] += 240
        await until_shown(pilot, "These figures are from 4m ago: /var/lib/pertoken/telemetry.db: locked")
        assert "70B-Instruct" in text_of(pilot)
        source.error = None
        await until_gone(pilot, "These figures are from")


async def test_an_unexpected_error_is_shown_and_not_fatal() -> None:
    async with running(FixedSource(error=lambda: ZeroDivisionError("[b]oops"))) as pilot:
        await until_shown(pilot, "unexpected ZeroDivisionError: [b]oops")
