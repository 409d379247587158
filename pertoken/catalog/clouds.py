"""Clouds as a host sees them: how its firmware names them, and the pages of their metadata services."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """A page of plain text and the part of it that is meant."""

    path: str
    pattern: str

    def part(self, text: str) -> str | None:
        """What the page says; None if it says something else."""
        match = re.fullmatch(self.pattern, text.strip())
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Cloud:
    """One row of `clouds.toml`, which says what each field means."""

    name: str
    dmi: Mapping[str, str]
    base_url: str
    headers: Mapping[str, str]
    instance_type: Page
    region: Page
    purchase: Page
    words: Mapping[str, str]
    unreachable: str
    source: str
    as_of: str
    token_path: str | None = None
    token_request: Mapping[str, str] | None = None
    token_header: str | None = None


@cache
def clouds() -> tuple[Cloud, ...]:
    """All clouds known."""
    rows = tomllib.loads(files("pertoken.catalog").joinpath("clouds.toml").read_text(encoding="utf-8"))["cloud"]
    pages = ("instance_type", "region", "purchase")
    return tuple(Cloud(**row | {name: Page(**row[name]) for name in pages}) for row in rows)


def cloud_of(dmi: Mapping[str, str | None]) -> Cloud | None:
    """The cloud whose firmware says this; None for a host of one's own."""
    return next((cloud for cloud in clouds() if all(dmi.get(key) == text for key, text in cloud.dmi.items())), None)
