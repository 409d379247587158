"""A few sentences, cut with an ellipsis where they do not fit; `enter` opens all of them."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll

from pertoken.tui.widgets.plain_text import PlainText

_MORE = " …"


class Notices(VerticalScroll):
    """List of hints or events, as high as its `max-height` allows."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = PlainText()
        self._sentences: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """Yield the text."""
        yield self._text

    def show(self, lines: Sequence[str]) -> None:
        """Show these sentences; without any, the widget is hidden."""
        self._sentences = tuple(lines)
        self.set_class(not lines, "-empty")
        self._fit()

    def on_resize(self) -> None:
        """Cut the sentences again, for the new width."""
        self._fit()

    def _fit(self) -> None:
        text, width, most = "\n".join(self._sentences), self.content_size.width, self.styles.max_height
        if width > len(_MORE) and most is not None and most.cells:
            rows = [row.plain.rstrip() for row in Text(text).wrap(self.app.console, width)]
            if len(rows) > most.cells:
                last = rows[most.cells - 1]
                if cell_len(last) > width - len(_MORE):  # without its last word, or part of one that fills the row
                    last = last.rpartition(" ")[0] or set_cell_size(last, width - len(_MORE))
                text = "\n".join([*rows[: most.cells - 1], last.rstrip() + _MORE])
        self._text.update(text)
