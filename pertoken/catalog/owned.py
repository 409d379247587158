"""Default costs of owning a server in addition to its purchase."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Term:
    """One number of the cost of ownership that its owner may state."""

    value: float
    """Default value."""
    low: float
    high: float
    usual: str
    meaning: str


@cache
def terms() -> Mapping[str, Term]:
    """Return the terms by name."""
    table = tomllib.loads(files("pertoken.catalog").joinpath("owned.toml").read_text(encoding="utf-8"))
    return {name: Term(**row) for name, row in table["terms"].items()}
