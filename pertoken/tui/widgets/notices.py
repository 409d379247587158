"""A few sentences that scroll if they do not fit; `enter` opens all of them."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from pertoken.tui.widgets.plain_text import PlainText


class Notices(VerticalScroll):
    """List of hints or events."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = PlainText()

    def compose(self) -> ComposeResult:
        """Yield the text."""
        yield self._text

    def show(self, lines: Sequence[str]) -> None:
        """Show these sentences; without any, the widget is hidden."""
        self.set_class(not lines, "-empty")
        self._text.update("\n".join(lines))
