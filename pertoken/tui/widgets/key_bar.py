"""The keys of a page in its last line: one widget, where Textual's footer has one for every key."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

ALWAYS = ("keys", "quit")
"""Actions with a key in the line however narrow it is: from the first, all others can be found."""
_KEY = "bold $footer-key-foreground"


@dataclass(frozen=True, slots=True)
class Entry:
    """Keys with one word, such as `?` with `Keys`, or `,` and `.` with `Step`."""

    actions: tuple[str, ...]
    keys: tuple[str, ...]
    """Names in Textual."""
    shown: tuple[str, ...]
    """Labels on the keyboard."""
    word: str

    @property
    def cells(self) -> int:
        """Width of the entry."""
        return sum(map(len, self.shown)) + 1 + len(self.word)

    def key_at(self, cell: int) -> str:
        """Return the key to press for a click on a cell of the entry; on its word: the first key."""
        for key, shown in zip(self.keys, self.shown, strict=True):
            if 0 <= cell < len(shown):
                return key
            cell -= len(shown)
        return self.keys[0]


def fitted(entries: Sequence[Entry], width: int) -> list[Entry]:
    """Return the entries that fit a line, in their order.

    Those of `ALWAYS` come before all others; an entry that does not fit leaves its place to a shorter one after it.
    """
    kept: set[int] = set()
    for i in sorted(range(len(entries)), key=lambda i: entries[i].actions[0] not in ALWAYS):
        if entries[i].cells <= width:
            kept.add(i)
            width -= entries[i].cells + 1
    return [entries[i] for i in sorted(kept)]


class KeyBar(Widget, can_focus=False):
    """Shows the keys that the bindings of the page list, and presses the one that is clicked."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom;
        height: 1;
        text-wrap: nowrap;
        color: $footer-description-foreground;
        background: $footer-background;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Entry] = []

    def on_mount(self) -> None:
        """Follow the bindings of the page."""
        self.screen.bindings_updated_signal.subscribe(self, self._read)

    def _read(self, screen: Screen[None]) -> None:
        bindings = [active.binding for active in screen.active_bindings.values() if active.binding.show]
        entries = [
            Entry(
                tuple(binding.id or binding.action for binding in together),
                tuple(binding.key for binding in together),
                tuple(self.app.get_key_display(binding) for binding in together),
                together[0].description,
            )
            for _, grouped in groupby(bindings, key=lambda binding: binding.group or binding)
            if (together := list(grouped))
        ]
        if entries != self._entries:
            self._entries = entries
            self.refresh()

    def render(self) -> Content:
        """Return the line."""
        parts: list[str | tuple[str, str]] = []
        for entry in fitted(self._entries, self.size.width):
            parts += [("".join(entry.shown), _KEY), f" {entry.word} "]
        return Content.assemble(*parts)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Press the key under the mouse."""
        cell = event.x
        for entry in fitted(self._entries, self.size.width):
            if 0 <= cell < entry.cells:
                self.app.simulate_key(entry.key_at(cell))
                return
            cell -= entry.cells + 1
