"""A few sentences that scroll when there are more than fit; `enter` opens them all."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from pertoken.tui.widgets.plain_text import PlainText


class Notices(VerticalScroll):
    """Hints, or events."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = PlainText()

    def compose(self) -> ComposeResult:
        """One text."""
        yield self._text

    def show(self, lines: Sequence[str]) -> None:
        """Show these sentences; without any it takes no room."""
        self.set_class(not lines, "-empty")
        self._text.update("\n".join(lines))
