"""Keys at the bottom of a screen: which of them fit, and their words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from pertoken.text.program.key_names import key_name
from pertoken.text.program.keys import KEY_OF

FIRST = ("quit", "keys", "back", "open")
"""Actions that are shown on the narrowest screen too, most important first."""


@dataclass(frozen=True, slots=True)
class Item:
    """One word with the keys that it is for."""

    actions: tuple[str, ...]
    word: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the keys."""
        return tuple(map(key_name, self.actions))

    @property
    def cells(self) -> int:
        """Width on the screen."""
        return cell_len(f"{''.join(self.labels)} {self.word}")


def items(actions: Sequence[str], words: Mapping[str, str]) -> tuple[Item, ...]:
    """Return the keys of these actions; neighbours with the same word are one item. `words` replaces words."""
    shown: list[Item] = []
    for action in actions:
        word = words.get(action, KEY_OF[action].footer)
        if shown and shown[-1].word == word:
            shown[-1] = Item((*shown[-1].actions, action), word)
        else:
            shown.append(Item((action,), word))
    return tuple(shown)


def fitting(shown: Sequence[Item], width: int) -> tuple[Item, ...]:
    """Return the items that fit in `width` cells with a blank between them, in their order.

    Those of `FIRST` take their cells first, then the others from the left.
    """
    ranked = sorted(
        shown, key=lambda item: min((FIRST.index(name) for name in item.actions if name in FIRST), default=99)
    )
    left, kept = width + 1, []
    for item in ranked:
        if item.cells + 1 <= left:
            left -= item.cells + 1
            kept.append(item)
    return tuple(item for item in shown if item in kept)
