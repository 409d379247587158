"""The line to type a name in, with the names that it may become above it."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from pertoken.tui.text.program.targets import Target, candidates, unknown
from pertoken.tui.widgets.plain_text import PlainText

MAX_SHOWN = 6
_HINT = "A host, service, rule, setting or screen: tab completes, enter goes there, esc closes"


class JumpBox(Vertical):
    """Hidden until asked for. `enter` goes to the marked name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", show=False),
        Binding("down", "mark(1)", show=False),
        Binding("up", "mark(-1)", show=False),
    ]

    class Chosen(Message):
        """A name was chosen; a sentence where there is none of it."""

        def __init__(self, target: Target | str) -> None:
            super().__init__()
            self.target = target

    def __init__(self, known: Callable[[], Sequence[Target]]) -> None:
        super().__init__()
        self._known = known
        self._found: Sequence[Target] = ()
        self._marked = 0

    def compose(self) -> ComposeResult:
        """The names above the line."""
        yield PlainText()
        yield Input(placeholder=_HINT, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Stand still."""
        self.query_one(Input).cursor_blink = False

    def open(self) -> None:
        """Show it empty and take the keys."""
        box = self.query_one(Input)
        box.value = ""
        self.display = True
        self._find("")
        box.focus()

    def close(self) -> bool:
        """Hide it; return whether it was open."""
        was, self.display = self.display, False
        return was

    def _find(self, text: str) -> None:
        self._found, self._marked = candidates(text, self._known()), 0
        self._list()

    def _list(self) -> None:
        first = max(0, min(self._marked - MAX_SHOWN + 1, len(self._found) - MAX_SHOWN))
        lines = [
            f"{'▸' if n == self._marked else ' '} {each.label}"
            for n, each in enumerate(self._found[first : first + MAX_SHOWN], first)
        ]
        more = len(self._found) - first - len(lines)
        text = "\n".join([*lines, *([f"  and {more} more"] if more > 0 else [])])
        self.query_one(PlainText).update(text or "  no such name")

    def action_mark(self, by: int) -> None:
        """Mark another name."""
        self._marked = max(0, min(len(self._found) - 1, self._marked + by))
        self._list()

    def action_complete(self) -> None:
        """Type the marked name to its end."""
        if self._found:
            box = self.query_one(Input)
            box.value = self._found[self._marked].name
            box.cursor_position = len(box.value)

    @on(Input.Changed)
    def find(self, event: Input.Changed) -> None:
        """List what the text may become; no filter sees it."""
        event.stop()
        self._find(event.value)

    @on(Input.Submitted)
    def choose(self, event: Input.Submitted) -> None:
        """Go to the marked name; a name that there is not leaves the line open to be mended."""
        event.stop()
        if not event.value.strip() and not self._marked:
            self.close()
            self.screen.set_focus(None)
        elif self._found:
            self.close()
            self.post_message(self.Chosen(self._found[self._marked]))
        else:
            self.post_message(self.Chosen(unknown(event.value, self._known())))

    def on_descendant_blur(self, _: events.DescendantBlur) -> None:
        """Close it when something else takes the keys."""
        self.display = False
