"""Public words: what this program and its catalog write themselves, so that it identifies no site."""

import csv
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pertoken.catalog.market import load_market
from pertoken.state.fleet import LINKS

_PACKAGE = Path(__file__).parents[2]
_UNREAD = frozenset({"claims", "claims.py", "cli", "demo", "migrations", "testing", "tui"})
"""Packages whose text is not stored, or is made up."""
_LITERAL = re.compile(r'"""([\s\S]*?)"""|"((?:[^"\\\n]|\\.)*)"')
_FIELD = re.compile(r'^\s+([a-z]\w*)\s*:|"(\w+)"\s*[:\]]', re.MULTILINE)
_PLACEHOLDER = re.compile(r"\S*\{[^{}]*\}\S*")
_IDENTIFIER = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
_PUBLIC_SUFFIX = re.compile(r"(?:-(?:instruct|chat|it|base|hf|fp8|awq|gptq|int4|int8|bf16))*")
_HARDWARE = frozenset(
    [
        "AMD",
        "Amazon",
        "Core",
        "Debian",
        "Dell",
        "EC2",
        "EPYC",
        "GIGABYTE",
        "HPE",
        "Intel",
        "LTS",
        "Lenovo",
        "NVIDIA",
        "Processor",
        "Supermicro",
        "Ubuntu",
        "Xeon",
    ]
)
"""Makers of computers, processors and systems, which name no site."""
TOKEN = re.compile(r"[\w.+@/~%#&*-]*[\w%]")
"""A word, a number, a path or a flag, without the punctuation behind it."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words that are published with the program."""

    constants: frozenset[str]
    """Whole texts: states, reasons, series."""
    terms: frozenset[str]
    """Names of the catalog: knobs, flags, devices, instance types, regions, providers."""
    words: frozenset[str]
    """Words of the program's own sentences."""
    fields: frozenset[str]
    """Names of fields, which are keys of stored JSON."""


@cache
def public_vocabulary() -> Vocabulary:
    """Return the words of the installed program."""
    literals: set[str] = set()
    fields = set(LINKS)
    for file in sorted(_PACKAGE.rglob("*.py")):
        if not _UNREAD.intersection(file.relative_to(_PACKAGE).parts):
            source = file.read_text(encoding="utf-8")
            literals.update(match[2] for match in _LITERAL.finditer(source) if match[2])
            if "plugins" in file.parts:  # a rule's docstring is the title of what it proposes
                literals.update(match[1] for match in _LITERAL.finditer(source) if match[1])
            fields.update(match[1] or match[2] for match in _FIELD.finditer(source))
    terms = {text for text in _catalog_texts() if not re.search(r"\s", text)}
    terms.update(word for name in _devices() for word in name.split())
    sentences = (_PLACEHOLDER.sub(" ", literal) for literal in literals if " " in literal)
    words = {word for sentence in sentences for word in TOKEN.findall(sentence) if "/" not in word[:1]}
    words.update(flag for text in _catalog_texts() for flag in TOKEN.findall(text) if flag.startswith("--"))
    constants = {literal for literal in literals if "{" not in literal}
    words.update(constant for constant in constants if _IDENTIFIER.fullmatch(constant))
    return Vocabulary(frozenset(constants), frozenset(terms), frozenset(words | _HARDWARE), frozenset(fields))


def published(text: str) -> str | None:
    """Return a public name of a model or device itself, of a path the model it ends in; None for any other text."""
    market = load_market()
    if (model := market.model(text)) is not None:
        owner, _, name = model.name.rpartition("/")
        stated_owner, _, stated_name = text.casefold().rpartition("/")
        suffix = stated_name.removeprefix(name.casefold())
        is_public = stated_owner in ("", owner.casefold()) and suffix != stated_name
        return text if is_public and _PUBLIC_SUFFIX.fullmatch(suffix) else model.name
    return text if market.accelerator(text) is not None else None


@cache
def _devices() -> frozenset[str]:
    accelerators = load_market().accelerators
    return frozenset(name for device in accelerators for name in (device.name, *device.reported_names))


def _catalog_texts() -> Iterator[str]:
    for file in sorted((_PACKAGE / "catalog").iterdir()):
        if file.suffix == ".csv":
            with file.open(encoding="utf-8", newline="") as opened:
                for row in csv.reader(opened):
                    yield from row
        elif file.suffix == ".toml" and file.name not in ("claims.toml", "invoices.toml"):
            yield from _texts(tomllib.loads(file.read_text(encoding="utf-8")))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)
