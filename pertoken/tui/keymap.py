"""Custom keys: the key of each action, and errors in a custom choice."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from textual.binding import Binding
from textual.keys import format_key

from pertoken.errors import BadInput
from pertoken.printable import literal
from pertoken.text.keys import KEY_OF, KEYS, Key

FIXED = ("enter", "escape", "tab")
"""Keys that widgets also use: their actions keep them."""
SETTING = "screens.keys"
_SEPARATORS = {",": "comma", " ": "space"}
"""Names of characters that separate keys in a binding."""


def keymap_of(chosen: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the custom key of each action that has one, by action, as Textual names keys.

    Raises BadInput for an action that does not exist, and for two actions with one key.
    """
    keys: dict[str, str] = {}
    for action, key in chosen:
        if action not in KEY_OF:
            near = difflib.get_close_matches(action, KEY_OF, 1)
            did = f"; did you mean {near[0]}?" if near else "; docs/keys.md lists them"
            raise BadInput(f"{SETTING}: {literal(action)}: no such action{did}")
        name = "+".join(_name(part) if len(part) == 1 else part.lower() for part in _parts(key))
        if KEY_OF[action].key in FIXED or name in FIXED:
            raise BadInput(f"{SETTING}: {action} = {literal(key)!r}: enter, escape and tab cannot be changed")
        keys[action] = name
    _refuse_clashes(mapped(keys), keys)
    return keys


def _name(character: str) -> str:
    """Return Textual's name of a key that types a character: `question_mark`."""
    if character in _SEPARATORS:
        return _SEPARATORS[character]
    return next(iter(Binding.make_bindings([Binding(character, "")]))).key


def _parts(key: str) -> list[str]:
    return [key] if len(key) == 1 else key.replace("++", "+plus").split("+")


def mapped(keymap: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the table of keys with custom keys in place of their defaults."""
    return tuple(
        replace(key, key=keymap[key.action], shown=format_key(keymap[key.action])) if key.action in keymap else key
        for key in KEYS
    )


def _refuse_clashes(keys: Sequence[Key], keymap: Mapping[str, str]) -> None:
    owners: dict[str, Key] = {}
    for key in keys:
        other = owners.setdefault(key.key, key)
        if other is not key:
            mine, theirs = (key, other) if key.action in keymap else (other, key)
            raise BadInput(
                f"{SETTING}: {mine.shown} is chosen for {mine.action} and is also the key of {theirs.action}: choose "
                f"another key, or give {theirs.action} a key of its own"
            )
