"""Names of keys in sentences, as the custom keys of a person have them.

A process shows one choice of keys at a time: the app sets it with `name_keys` when it starts.
"""

from collections.abc import Iterable

from pertoken.text.program.keys import KEYS, Key

_names = {key.action: key.shown for key in KEYS}


def name_keys(keys: Iterable[Key]) -> None:
    """Use the names of these keys from now on."""
    _names.update((key.action, key.shown) for key in keys)


def key_name(action: str) -> str:
    """Return the name of the key of an action: `p`, `f6`."""
    return _names[action]


def with_keys(sentence: str) -> str:
    """Return a sentence with the name of a key in place of each action in braces: `press {plan}`."""
    return sentence.format_map(_names)
