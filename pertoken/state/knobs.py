"""Table of knobs: the settings of a deployment with type, range, risk, and the means to price them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pertoken.state.model import Model


class InvalidEdit(ValueError):
    """An edit names something that does not exist, or a value outside its type or range."""


class UnknownKnob(InvalidEdit):
    """A name that is not a knob of a deployment."""


MAX_NAME = 255
"""Characters of a name."""
MAX_NAMES = 256
"""Names in a list."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of `knobs.toml`; the file's header explains each field."""

    name: str
    label: str
    type: str
    restart: bool
    risk: str
    priced_by: str
    scope: str = "engine"
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    trial: str = "some hours"

    def check(self, value: object) -> object:
        """Return `value` as it is stored. Raises InvalidEdit if it is of another type or outside the range."""
        if self.type == "model" and isinstance(value, Model):
            return value
        if self.type == "text" and is_name(value):
            return value
        if self.type == "word" and isinstance(value, str) and value in self.values:
            return value
        if self.type == "bool" and isinstance(value, bool):
            return value
        if self.type == "names" and isinstance(value, list | tuple) and _are_names(value):
            return tuple(value)
        if self.type == "int" and type(value) is int and self._in_range(value):
            return value
        if self.type == "float" and (type(value) is int or type(value) is float) and self._in_range(value):
            return float(value)
        raise InvalidEdit(f"{self.name}={_shown(value)} is not possible: {self.label} must be {self.domain}")

    @property
    def domain(self) -> str:
        """Description of the values that this knob accepts."""
        if self.type == "word":
            return f"one of {', '.join(self.values)}"
        if self.type in ("int", "float"):
            kind = "a whole number" if self.type == "int" else "a number"
            unit = f" {self.unit}" if self.unit else ""
            return f"{kind} from {self.low:g} to {self.high:g}{unit}"
        return {"model": "a Model", "text": "a name", "bool": "True or False", "names": "a list of names"}[self.type]

    def _in_range(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@cache
def knobs() -> Mapping[str, Knob]:
    """Return every knob by name, in the order of the table."""
    rows = tomllib.loads(files("pertoken.state").joinpath("knobs.toml").read_text(encoding="utf-8"))["knob"]
    return {row["name"]: Knob(**{**row, "values": tuple(row.get("values", ()))}) for row in rows}


_INSTEAD = {
    "replicas": ": use service.scaled_to(n) or service.resized()",
    **dict.fromkeys(
        ("accelerator", "provider", "region", "purchase", "instance_type"), ": use on(Placement(...)) of a service"
    ),
    "devices": ": use on_devices(ids)",
}
"""Remedies for names that are no knobs, but that a rule may look for."""


def checked(changes: Mapping[str, object]) -> dict[str, Any]:
    """Return the changes with each value as it is stored.

    Raises UnknownKnob for a name that is not a knob, InvalidEdit for a value that is not possible.
    """
    for name in changes:
        if name not in knobs():
            raise UnknownKnob(
                f"{name!r} is not a knob of a deployment{_INSTEAD.get(name, '')}; known: {', '.join(knobs())}"
            )
    return {name: knobs()[name].check(value) for name, value in changes.items()}


def is_name(value: object) -> bool:
    """Return whether a value can name something on a screen and in a command."""
    return isinstance(value, str) and bool(value.strip()) and len(value) <= MAX_NAME and value.isprintable()


def _are_names(values: Sequence[object]) -> bool:
    return len(values) <= MAX_NAMES and all(is_name(value) for value in values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
