"""Input line for a filter."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events
from textual.message import Message
from textual.widgets import Input


class FilterBox(Input):
    """Input line that is hidden while it is not typed into. `apply` is called with each new text."""

    KEY_WORDS: ClassVar[Mapping[str, str]] = {"open": "Keep filter", "back": "Drop filter"}
    """Words in the last line while the box has the keys."""

    class Left(Message):
        """The line was left by enter or a click; the filter stays."""

    def __init__(self, apply: Callable[[str], None]) -> None:
        super().__init__(
            placeholder="Words that rows must contain; ! first: must not; ~ first: fuzzy. enter keeps, esc drops",
            compact=True,
            select_on_focus=False,
        )
        self._apply = apply
        self.cursor_blink = False
        self.display = False

    def open(self) -> None:
        """Show the line and take the focus; a filter that was kept can be edited at its end."""
        self.display = True
        self.cursor_position = len(self.value)
        self.screen.set_focus(self)

    def watch_value(self, value: str) -> None:
        """Apply a new text. A message would arrive after a frame that has the text without its effect."""
        if self.is_mounted:
            self._apply(value)

    @property
    def in_force(self) -> bool:
        """Whether a filter is typed or kept."""
        return self.display or bool(self.value)

    def drop(self) -> None:
        """Empty and hide the line."""
        self.display, self.value = False, ""

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, and let the page move the focus."""
        event.stop()
        self.display = False
        self.post_message(self.Left())

    def on_blur(self, _: events.Blur) -> None:
        """Hide the line; the page shows a filter that is kept."""
        self.display = False
        self.post_message(self.Left())
