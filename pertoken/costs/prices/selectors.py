"""Matching of a price's selector with devices: by kind, UUID, or whole words of the name."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Protocol

from pertoken.catalog.market import Accelerator, load_market

KINDS = ("cpu", "gpu")
EXACT = 1_000_000
"""Rank of a UUID: above that of any name."""
_WORD = re.compile(r"[^\W_]+")


class Device(Protocol):
    """Fields of a device that a selector is matched with."""

    @property
    def kind(self) -> str: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def uuid(self) -> str: ...  # noqa: D102


def identity(selector: str) -> str:
    """Return the selector in lower case with its words separated by one space; empty if it has none."""
    return " ".join(_words(selector))


def rank(selector: str, device: Device) -> int:
    """Return the rank of a selector for a device: 0 no match, 1 its kind, more for words of its name, `EXACT` its UUID.

    A name matches by whole words in sequence, and so do the other names that the catalog knows the accelerator by:
    `H100` names an "NVIDIA H100 80GB HBM3", `H10` does not; `A100 80GB` names an "NVIDIA A100-SXM4-80GB".
    """
    words = _words(selector)
    if words and selector.strip().casefold() == device.uuid.casefold():
        return EXACT
    if len(words) == 1 and words[0] in KINDS:
        return int(words[0] == device.kind)
    return 1 + len(identity(selector)) if _within(words, _names(device.name)) else 0


def accelerators(selector: str) -> tuple[Accelerator, ...]:
    """Accelerators of the catalog that a selector names; `gpu` names all."""
    words, known = _words(selector), load_market().accelerators
    return tuple(
        accelerator
        for accelerator in known
        if words == ("gpu",) or _within(words, _names(accelerator.reported_names[0]))
    )


def formerly(selector: str, device: Device) -> bool:
    """Return whether a selector named a device when any part of a name did, and does not now."""
    return selector.lower() in device.name.lower() and identity(selector) not in KINDS and not rank(selector, device)


def _within(words: tuple[str, ...], names: tuple[tuple[str, ...], ...]) -> bool:
    return bool(words) and any(words == part for name in names for part in _parts(name, len(words)))


def _parts(name: tuple[str, ...], n: int) -> Iterator[tuple[str, ...]]:
    return (name[at : at + n] for at in range(len(name) - n + 1))


@cache
def _names(device_name: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of a device as words: its driver's, and those the catalog has for its accelerator."""
    known = load_market().accelerator(device_name)
    others = (known.name, *known.reported_names) if known else ()
    return tuple(dict.fromkeys(map(_words, (device_name, *others))))


@cache
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))
