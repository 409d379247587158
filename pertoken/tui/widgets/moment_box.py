"""The line to type a time in."""

from textual import events
from textual.message import Message
from textual.widgets import Input


class MomentBox(Input):
    """Hidden until asked for; a time that is entered is replayed."""

    class Chosen(Message):
        """A time was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(placeholder="A time to show: 2026-11-21T10:00Z, 2026-11-21, or 3h for ago", compact=True)
        self.cursor_blink = False
        self.display = False

    def open(self) -> None:
        """Show it and take the keys."""
        self.value = ""
        self.display = True
        self.focus()

    def drop(self) -> bool:
        """Hide it; return whether it was open."""
        was, self.display = self.display, False
        return was

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand over what was typed, and give the keys back."""
        event.stop()
        text = event.value.strip()
        self.screen.set_focus(None)
        self.display = False
        if text:
            self.post_message(self.Chosen(text))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep what is typed from the filter of the page."""
        event.stop()

    def on_blur(self, _: events.Blur) -> None:
        """Close it when something else takes the keys."""
        self.display = False
