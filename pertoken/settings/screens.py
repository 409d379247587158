"""Settings of the screens: which themes, borders and keys there are to choose from."""

import re
from collections.abc import Callable, Mapping
from typing import Any

THEMES = ("dark", "light", "16-colour")
"""Colours of the screens; `16-colour` uses those of the terminal."""
BORDERS = ("unicode", "ascii")
"""Characters that lines, bars and plots are drawn with."""
HEADLINES = ("blended", "generated", "per_request", "good")
"""Prices that may be the headline, which `metrics.HEADLINES` explains."""
REFRESHES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Times between two readings that the settings screen offers, seconds."""
_ACTION = re.compile(r"[a-z_]+")


def one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    """Return a parser of one of some names."""

    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return str(value)

    return parse


def read_keys(table: Any) -> tuple[tuple[str, str], ...]:
    """Return (action, key) of a table such as `{sort = "s"}`. Whether both exist is checked by the screens."""
    if not isinstance(table, Mapping):
        raise ValueError('must be a table of actions and keys, such as {sort = "s"}')
    for action, key in table.items():
        if not _ACTION.fullmatch(action):
            raise ValueError(f"{action}: is not an action; docs/keys.md lists them")
        if not isinstance(key, str) or not key.strip() or len(key) > 40:
            raise ValueError(f'{action}: must be a key, such as "s", "ctrl+s" or "f5"')
    return tuple((action, key.strip()) for action, key in table.items())
