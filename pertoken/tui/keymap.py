"""Keys of a person's own: which key each action has, and what is wrong with a choice."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from textual.keys import _character_to_key, format_key

from pertoken.errors import BadInput
from pertoken.printable import literal
from pertoken.tui.keys import KEY_OF, KEYS, Key

FIXED = ("enter", "escape", "tab")
"""Keys that widgets use, too: their actions keep them."""
SETTING = "screens.keys"


def keymap_of(chosen: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the key of each action that has one of its own, as Textual names keys.

    Raises BadInput for an action that does not exist, and for two actions with one key.
    """
    keys: dict[str, str] = {}
    for action, key in chosen:
        if action not in KEY_OF:
            near = difflib.get_close_matches(action, KEY_OF, 1)
            did = f"; did you mean {near[0]}?" if near else "; docs/keys.md lists them"
            raise BadInput(f"{SETTING}: {literal(action)}: no such action{did}")
        name = "+".join(_character_to_key(part) if len(part) == 1 else part.lower() for part in _parts(key))
        if KEY_OF[action].key in FIXED or name in FIXED:
            raise BadInput(f"{SETTING}: {action} = {literal(key)!r}: enter, escape and tab stay what they are")
        keys[action] = name
    _refuse_clashes(mapped(keys), keys)
    return keys


def _parts(key: str) -> list[str]:
    return [key] if len(key) == 1 else key.replace("++", "+plus").split("+")


def mapped(keymap: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the table of keys with a person's own."""
    return tuple(
        replace(each, key=keymap[each.action], shown=format_key(keymap[each.action])) if each.action in keymap else each
        for each in KEYS
    )


def _refuse_clashes(keys: Sequence[Key], keymap: Mapping[str, str]) -> None:
    owners: dict[str, Key] = {}
    for each in keys:
        other = owners.setdefault(each.key, each)
        if other is not each:
            mine, theirs = (each, other) if each.action in keymap else (other, each)
            raise BadInput(
                f"{SETTING}: {mine.shown} is chosen for {mine.action} and is the key of {theirs.action}, too: choose "
                "another, or give that one a key of its own"
            )
