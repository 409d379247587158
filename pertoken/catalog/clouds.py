"""Clouds as detected on a host: their names in the firmware, and the pages of their metadata services."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a metadata service, and the pattern of the value on it."""

    path: str
    pattern: str

    def part(self, text: str) -> str | None:
        """Return the value on a page; None if the page does not match."""
        match = re.fullmatch(self.pattern, text.strip())
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Cloud:
    """One row of `clouds.toml`, which explains each field."""

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
    """Return all known clouds."""
    rows = tomllib.loads(files("pertoken.catalog").joinpath("clouds.toml").read_text(encoding="utf-8"))["cloud"]
    pages = ("instance_type", "region", "purchase")
    return tuple(Cloud(**row | {name: Page(**row[name]) for name in pages}) for row in rows)


def cloud_of(dmi: Mapping[str, str | None]) -> Cloud | None:
    """Return the cloud with these firmware values; None for any other host."""
    return next((cloud for cloud in clouds() if all(dmi.get(key) == text for key, text in cloud.dmi.items())), None)
