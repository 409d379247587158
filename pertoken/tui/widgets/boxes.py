"""Input lines: an answer to a question, a filter, a name to jump to, and a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from pertoken.text.keys import KeyTarget, candidates, key_name, unknown
from pertoken.tui.widgets.layout import PlainText


class _TextBox(Vertical):
    """Text above an input line, hidden until it is opened."""

    def __init__(self, hint: str = "") -> None:
        super().__init__()
        self._text = PlainText()
        self._input = Input(placeholder=hint, compact=True, select_on_focus=False)
        self._input.cursor_blink = False
        self.display = False

    def compose(self) -> ComposeResult:
        """Yield the text and the line."""
        yield self._text
        yield self._input

    def close(self) -> bool:
        """Hide the box; return whether it was open."""
        was_open, self.display = self.display, False
        return was_open


class AskBox(_TextBox):
    """Question with an input line, hidden until `ask`. `enter` sends the answer, `escape` closes it."""

    @dataclass
    class Given(Message):
        """A person answered."""

        text: str

    def ask(self, question: str, text: str) -> None:
        """Show a question with a text to edit, and take the focus."""
        self._text.update(question)
        self._input.value, self._input.cursor_position = text, len(text)
        self.display = True
        self.screen.set_focus(self._input)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Stop the event: the page would use the text as a filter."""
        event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the answer; the page closes the box if it accepts it."""
        event.stop()
        self.post_message(self.Given(event.value))


class _LineBox(Input):
    """Input line, hidden until it is opened."""

    def __init__(self, hint: str) -> None:
        super().__init__(placeholder=hint, compact=True, select_on_focus=False)
        self.cursor_blink = False
        self.display = False


class FilterBox(_LineBox):
    """Input line that is hidden while it is not typed into. `apply` is called with each new text."""

    KEY_WORDS: ClassVar[Mapping[str, str]] = {"open": "Keep filter", "back": "Drop filter"}
    """Words in the last line while the box has the keys."""

    class Left(Message):
        """The line was left by enter or a click; the filter stays."""

    def __init__(self, apply: Callable[[str], None]) -> None:
        super().__init__("Words that rows must contain; ! first: must not; ~ first: fuzzy. enter keeps, esc drops")
        self._apply = apply

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


MAX_SHOWN = 6
_HINT = "A host, service, rule, setting or screen: tab completes, enter goes there, esc closes"


class JumpBox(_TextBox):
    """Input line with matching names, hidden until opened. `enter` goes to the marked name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", show=False),
        Binding("down", "mark(1)", show=False),
        Binding("up", "mark(-1)", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """A person chose a name; `target` is an error message if no name matches."""

        target: KeyTarget | str

    def __init__(self, targets: Callable[[], Sequence[KeyTarget]]) -> None:
        super().__init__(_HINT)
        self._targets = targets
        self._matches: Sequence[KeyTarget] = ()
        self._marked = 0

    def open(self) -> None:
        """Show the empty line and take the focus."""
        self._input.value = ""
        self.display = True
        self._find("")
        self.screen.set_focus(self._input)

    def _find(self, text: str) -> None:
        self._matches, self._marked = candidates(text, self._targets()), 0
        self._list()

    def _list(self) -> None:
        first = max(0, min(self._marked - MAX_SHOWN + 1, len(self._matches) - MAX_SHOWN))
        lines = [
            f"{'▸' if n == self._marked else ' '} {target.label}"
            for n, target in enumerate(self._matches[first : first + MAX_SHOWN], first)
        ]
        more = len(self._matches) - first - len(lines)
        text = "\n".join([*lines, *([f"  and {more} more"] if more > 0 else [])])
        self._text.update(text or f"  no matching name; {key_name('palette')} searches commands")

    def action_mark(self, by: int) -> None:
        """Mark the name `by` lines below."""
        self._marked = max(0, min(len(self._matches) - 1, self._marked + by))
        self._list()

    def action_complete(self) -> None:
        """Complete the line with the marked name."""
        if self._matches:
            self._input.value = self._matches[self._marked].name
            self._input.cursor_position = len(self._input.value)

    @on(Input.Changed)
    def find(self, event: Input.Changed) -> None:
        """List the names that match the text; the event stops, because the page would filter by it."""
        event.stop()
        self._find(event.value)

    @on(Input.Submitted)
    def choose(self, event: Input.Submitted) -> None:
        """Go to the marked name; if no name matches, the line stays open to be corrected."""
        event.stop()
        if not event.value.strip() and not self._marked:
            self.close()
            self.screen.set_focus(None)
        elif self._matches:
            self.close()
            self.post_message(self.Chosen(self._matches[self._marked]))
        else:
            self.post_message(self.Chosen(unknown(event.value, self._targets())))

    def on_descendant_blur(self, _: events.DescendantBlur) -> None:
        """Hide the box when it loses the focus."""
        self.display = False


class MomentBox(_LineBox):
    """Input line for the time of a replay, hidden until opened."""

    @dataclass
    class Chosen(Message):
        """A person entered a time."""

        text: str

    def __init__(self) -> None:
        super().__init__("A time to show: 2026-11-21T10:00Z, 2026-11-21, or 3h for 3 hours ago")

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
