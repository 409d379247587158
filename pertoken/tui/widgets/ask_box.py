"""Input line for an answer, with the question above it."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from pertoken.tui.widgets.plain_text import PlainText


class AskBox(Vertical):
    """Question with an input line, hidden until `ask`. `enter` sends the answer, `escape` closes it."""

    class Given(Message):
        """A person answered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def compose(self) -> ComposeResult:
        """Yield the question and the line."""
        yield PlainText()
        yield Input(compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Hide the box."""
        self.display = False
        self.query_one(Input).cursor_blink = False

    def ask(self, question: str, text: str) -> None:
        """Show a question with a text to edit, and take the focus."""
        self.query_one(PlainText).update(question)
        box = self.query_one(Input)
        box.value, box.cursor_position = text, len(text)
        self.display = True
        self.screen.set_focus(box)

    def close(self) -> bool:
        """Hide the box; return whether it was open."""
        was_open, self.display = self.display, False
        return was_open

    def on_input_changed(self, event: Input.Changed) -> None:
        """Stop the event: the page would use the text as a filter."""
        event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the answer; the page closes the box if it accepts it."""
        event.stop()
        self.post_message(self.Given(event.value))
