"""Facts of `engine_lines.toml` on engines as a whole: whether they are developed, and their health page."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any


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
    rows = _rows()["line"]
    return {row["engine"]: EngineLine(**{**row, "successors": tuple(row["successors"])}) for row in rows}


def health_page(engine: str) -> str | None:
    """Return the path that succeeds only while an engine can serve; None if none is known."""
    return next((str(row["page"]) for row in _rows()["health"] if row["engine"] == engine), None)


@cache
def _rows() -> Mapping[str, list[dict[str, Any]]]:
    return tomllib.loads(files("pertoken.catalog").joinpath("engine_lines.toml").read_text(encoding="utf-8"))
