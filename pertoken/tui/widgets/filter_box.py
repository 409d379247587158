"""Input line for a filter."""

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.message import Message
from textual.widgets import Input


class FilterBox(Input):
    """Input line that is hidden until opened; the page applies every change at once."""

    KEY_WORDS: ClassVar[Mapping[str, str]] = {"open": "Keep filter", "back": "Drop filter"}
    """Words in the last line while the box has the keys."""

    class Left(Message):
        """A person pressed enter; the filter stays."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="Words that rows must contain; ! first: must not; ~ first: fuzzy. enter keeps, esc drops",
            compact=True,
        )
        self.cursor_blink = False
        self.display = False

    def open(self) -> None:
        """Show the line and take the focus."""
        self.display = True
        self.screen.set_focus(self)

    def drop(self) -> bool:
        """Empty and hide the line; return whether it was shown."""
        was_shown, self.display, self.value = self.display, False, ""
        return was_shown

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, and let the page move the focus."""
        event.stop()
        self.display = bool(self.value)
        self.post_message(self.Left())

    def on_blur(self, _: events.Blur) -> None:
        """Hide the line if it is empty."""
        self.display = bool(self.value)
