"""Input line for a name, with the matching names above it."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from pertoken.text.keys import Target, candidates, key_name, unknown
from pertoken.tui.widgets.plain_text import PlainText

MAX_SHOWN = 6
_HINT = "A host, service, rule, setting or screen: tab completes, enter goes there, esc closes"


class JumpBox(Vertical):
    """Input line with matching names, hidden until opened. `enter` goes to the marked name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", show=False),
        Binding("down", "mark(1)", show=False),
        Binding("up", "mark(-1)", show=False),
    ]

    class Chosen(Message):
        """A person chose a name; `target` is an error message if no name matches."""

        def __init__(self, target: Target | str) -> None:
            super().__init__()
            self.target = target

    def __init__(self, known: Callable[[], Sequence[Target]]) -> None:
        super().__init__()
        self._known = known
        self._matches: Sequence[Target] = ()
        self._marked = 0

    def compose(self) -> ComposeResult:
        """Yield the matching names and the line."""
        yield PlainText()
        yield Input(placeholder=_HINT, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Stop the cursor from blinking."""
        self.query_one(Input).cursor_blink = False

    def open(self) -> None:
        """Show the empty line and take the focus."""
        box = self.query_one(Input)
        box.value = ""
        self.display = True
        self._find("")
        self.screen.set_focus(box)

    def close(self) -> bool:
        """Hide the box; return whether it was open."""
        was_open, self.display = self.display, False
        return was_open

    def _find(self, text: str) -> None:
        self._matches, self._marked = candidates(text, self._known()), 0
        self._list()

    def _list(self) -> None:
        first = max(0, min(self._marked - MAX_SHOWN + 1, len(self._matches) - MAX_SHOWN))
        lines = [
            f"{'▸' if n == self._marked else ' '} {target.label}"
            for n, target in enumerate(self._matches[first : first + MAX_SHOWN], first)
        ]
        more = len(self._matches) - first - len(lines)
        text = "\n".join([*lines, *([f"  and {more} more"] if more > 0 else [])])
        self.query_one(PlainText).update(text or f"  no matching name; {key_name('palette')} searches commands")

    def action_mark(self, by: int) -> None:
        """Mark the name `by` lines below."""
        self._marked = max(0, min(len(self._matches) - 1, self._marked + by))
        self._list()

    def action_complete(self) -> None:
        """Complete the line with the marked name."""
        if self._matches:
            box = self.query_one(Input)
            box.value = self._matches[self._marked].name
            box.cursor_position = len(box.value)

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
            self.post_message(self.Chosen(unknown(event.value, self._known())))

    def on_descendant_blur(self, _: events.DescendantBlur) -> None:
        """Hide the box when it loses the focus."""
        self.display = False
