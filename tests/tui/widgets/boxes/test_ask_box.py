"""Input line for an answer."""

from textual.app import App, ComposeResult
from textual.widgets import Input

from pertoken.tui.widgets.boxes import AskBox


class _Asking(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []

    def compose(self) -> ComposeResult:
        yield AskBox()

    def on_ask_box_given(self, event: AskBox.Given) -> None:
        self.given.append(event.text)


async def test_it_is_hidden_until_asked_starts_with_the_last_answer_and_gives_what_is_typed() -> None:
    app = _Asking()
    async with app.run_test() as pilot:
        box = app.query_one(AskBox)
        assert not box.display and not box.close()
        box.ask("What [if]?", "a=1")
        await pilot.press("0", "enter")
        assert app.given == ["a=10"]
        assert box.close() and not box.display
        box.ask("Again?", "")
        assert app.query_one(Input).value == ""
