"""The line to type a filter in."""

from textual import events
from textual.message import Message
from textual.widgets import Input


class FilterBox(Input):
    """Hidden until asked for; what is typed applies at once."""

    class Left(Message):
        """The person is done typing; the filter stays."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="Words that rows must hold; ! before them: must not; ~ fuzzy. enter keeps, esc drops",
            compact=True,
        )
        self.cursor_blink = False
        self.display = False

    def open(self) -> None:
        """Show it and take the keys."""
        self.display = True
        self.focus()

    def drop(self) -> bool:
        """Empty and hide it; whether there was anything to drop."""
        was, self.display, self.value = self.display, False, ""
        return was

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, and give the keys back."""
        event.stop()
        self.display = bool(self.value)
        self.post_message(self.Left())

    def on_blur(self, _: events.Blur) -> None:
        """An empty filter needs no room."""
        self.display = bool(self.value)
