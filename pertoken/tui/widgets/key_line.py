"""Keys of the screen in its last line. A click on a key does what the key does."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from pertoken.text.keys import Item, fitting, items


class KeyLine(Widget):
    """One line of keys; on a narrow screen the least important are left out."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-line--key"}

    def __init__(self) -> None:
        super().__init__()
        self.auto_links = False
        self._items: tuple[Item, ...] = ()

    def show(self, actions: Sequence[str], words: Mapping[str, str]) -> None:
        """Show the keys of these actions; `words` replaces words of the table of keys."""
        shown = items(actions, words)
        if shown != self._items:
            self._items = shown
            self.refresh()

    def render(self) -> Text:
        """Return the keys that fit."""
        text, key_style = Text(no_wrap=True, end=""), self.get_component_rich_style("key-line--key")
        for item in fitting(self._items, self.size.width):
            for action, label in zip(item.actions, item.labels, strict=True):
                text.append(label, key_style + _click(action))
            text.append(f" {item.word}", _click(item.actions[0]))
            text.append(" ")
        return text


def _click(action: str) -> Style:
    return Style(meta={"@click": f"app.act('{action}')"})
