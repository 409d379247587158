"""Text that is laid out again only when it changes."""

from pertoken.tui.widgets.layout import PlainText
from tests.tui.reports import FixedSource
from tests.tui.screens import running, until_shown


async def test_the_same_text_lays_nothing_out_again_and_another_one_does() -> None:
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "run/wait")
        text = pilot.app.screen.query_one("#group-note", PlainText)
        text.display = True
        text.update("[b]one")
        await until_shown(pilot, "[b]one")
        calls: list[bool] = []
        text.refresh = lambda *_, **__: calls.append(True) or text  # type: ignore[method-assign,func-returns-value]
        text.update("[b]one")
        assert calls == []
        text.update("two")
        assert calls
