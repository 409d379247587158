"""Engines that are no longer developed, and recommended successors: facts of `engine_lines.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class EngineLine:
    """Maintenance status of an engine; `engine_lines.toml` explains each field."""

    engine: str
    status: str
    last_version: str
    successors: tuple[str, ...]
    source: str
    as_of: date


@cache
def engine_lines() -> Mapping[str, EngineLine]:
    """Return the statuses by engine. An engine that is not listed is developed, as far as known."""
    text = files("pertoken.catalog").joinpath("engine_lines.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["line"]
    return {row["engine"]: EngineLine(**{**row, "successors": tuple(row["successors"])}) for row in rows}
