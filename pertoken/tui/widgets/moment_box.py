"""Input line for a time."""

from textual import events
from textual.message import Message
from textual.widgets import Input


class MomentBox(Input):
    """Input line for the time of a replay, hidden until opened."""

    class Chosen(Message):
        """A person entered a time."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(
            placeholder="A time to show: 2026-11-21T10:00Z, 2026-11-21, or 3h for 3 hours ago", compact=True
        )
        self.cursor_blink = False
        self.display = False

    def open(self) -> None:
        """Show the empty line and take the focus."""
        self.value = ""
        self.display = True
        self.screen.set_focus(self)

    def drop(self) -> bool:
        """Hide the line; return whether it was open."""
        was_open, self.display = self.display, False
        return was_open

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the time, and give up the focus."""
        event.stop()
        text = event.value.strip()
        self.screen.set_focus(None)
        self.display = False
        if text:
            self.post_message(self.Chosen(text))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Stop the event: the page would use the text as a filter."""
        event.stop()

    def on_blur(self, _: events.Blur) -> None:
        """Hide the line when it loses the focus."""
        self.display = False
