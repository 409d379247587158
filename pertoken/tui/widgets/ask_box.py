"""A line to type an answer in, with what may be typed above it."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from pertoken.tui.widgets.plain_text import PlainText


class AskBox(Vertical):
    """Hidden until something is asked. `enter` gives the answer, `escape` none."""

    class Given(Message):
        """A person answered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def compose(self) -> ComposeResult:
        """The question above the line."""
        yield PlainText()
        yield Input(compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Stay away until something is asked."""
        self.display = False
        self.query_one(Input).cursor_blink = False

    def ask(self, question: str, text: str) -> None:
        """Show a question with an answer to change, and take the keys."""
        self.query_one(PlainText).update(question)
        box = self.query_one(Input)
        box.value, box.cursor_position = text, len(text)
        self.display = True
        box.focus()

    def close(self) -> bool:
        """Hide it; return whether it was open."""
        was, self.display = self.display, False
        return was

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep what is typed from those who filter by it."""
        event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the answer; whoever asked closes the line if it is a possible one."""
        event.stop()
        self.post_message(self.Given(event.value))
