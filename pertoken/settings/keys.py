"""Keys of the settings: their names in the file, the environment and on the command line, and how values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from pertoken.errors import BadInput
from pertoken.printable import short
from pertoken.settings import values
from pertoken.settings.alerts import Comparison, Scope, masked
from pertoken.settings.values import without_password

APP = "pertoken"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its attribute of `Settings`, its place in the file, its environment variable."""

    attribute: str
    section: str
    key: str
    environment: str
    default: object
    example: str
    parse: Callable[[object], object]
    option: str
    """As typed on the command line, by the commands that have it: `--interval`."""

    @classmethod
    def of(cls, spec: Field[object]) -> Setting:
        """Return the key a field of `Settings` stands for."""
        section = spec.metadata["section"]
        key = spec.name.removeprefix(f"{section}_") if section else spec.name
        return cls(
            attribute=spec.name,
            section=section,
            key=key,
            environment=f"{APP}_{spec.name}".upper(),
            default=spec.default,
            example=spec.metadata["example"],
            parse=spec.metadata["parse"],
            option=spec.metadata.get("option", f"--{key.replace('_', '-')}"),
        )

    @property
    def name(self) -> str:
        """As written in messages: `agent.interval`."""
        return f"{self.section}.{self.key}" if self.section else self.key


def parsed(key: Setting, value: object, where: str) -> object:
    """Return a value as its key reads it. `where` is the place that an error names.

    Raises BadInput for a value that the key refuses.
    """
    try:
        if isinstance(value, str) and values.CONTROL.search(value):
            raise values.Unrepeated("must be UTF-8 text without control characters")
        return key.parse(value)
    except values.Unrepeated as error:
        raise BadInput(f"{where}: {error}") from None
    except ValueError as error:
        raise BadInput(f"{where}: {short(str(error))} (got {short(repr(value))})") from None


def refuse_unknown(table: Mapping[str, object], keys: Sequence[Setting], file: Path) -> None:
    """Raise BadInput for the first key of a settings file that is none of `keys`, naming the nearest one."""
    sections = {key.section for key in keys if key.section}
    key_names = {(key.section, key.key) for key in keys}
    for name, value in table.items():
        if name in sections:
            if not isinstance(value, dict):
                raise BadInput(f"{file}: {name}: must be a section, written [{name}]")
            for key in value:
                if (name, key) not in key_names:
                    raise BadInput(f"{file}: {name}.{key}: no such setting{_nearest(key, name, keys)}")
        elif ("", name) not in key_names:
            raise BadInput(f"{file}: {name}: no such setting{_nearest(name, '', keys)}")


def _nearest(wrong: str, section: str, keys: Sequence[Setting]) -> str:
    from difflib import get_close_matches

    names = {key.key: key.name for key in keys if key.section == section} | {key.name: key.name for key in keys}
    close = get_close_matches(wrong, list(names), n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


WEBHOOKS = ("delivery.webhook", "delivery.alerts_to", "alerts.to")
"""Settings whose URLs are secret but for their host."""
DATABASES = ("db", "ship.url")


def shown(name: str, value: object) -> object:
    """Return the value of the setting `name` as plain values: what is unset in a table is left out."""
    if isinstance(value, Comparison | Scope):
        return str(value)
    if is_dataclass(value):
        row = {field.name: getattr(value, field.name) for field in fields(value)}
        return {key: shown(f"{name}.{key}", cell) for key, cell in row.items() if cell not in (None, "")}
    if isinstance(value, Mapping):
        return {str(key): shown(name, cell) for key, cell in value.items()}
    if isinstance(value, tuple | list):
        return [shown(name, item) for item in value]
    if not isinstance(value, str):  # dates and decimals become text
        return value if value is None or isinstance(value, bool | int | float) else str(value)
    if name in WEBHOOKS:
        return masked(value)
    return without_password(value) if name in DATABASES else secretless(value)


def secretless(text: str) -> str:
    """Return text without the password, query and fragment of a URL, or the password of `user:password@host`."""
    text = re.sub(r"((?:^|//)[^/@:\s]*):[^/\s]*@", r"\1:***@", text)
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return "***"
    return parts._replace(query="***" if parts.query else "", fragment="***" if parts.fragment else "").geturl()


_KINDS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple[str, ...]: "a list of texts",
}


def option(default: Any, meaning: str, *, low: float | None = None, high: float | None = None) -> Any:
    """Declare a field of an options dataclass: `few_running: int = option(16, "requests per device", low=0)`.

    The annotation is `bool`, `int`, `float`, `str`, `tuple[str, ...]` or a `Literal` of texts. A number that only a
    person knows is `int | None` or `float | None` with the default None. `low` and `high` bound a number, both
    included. A plain default (`few_running: int = 16`) is an option without a meaning or bounds.
    """
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, type, default, meaning and allowed values."""

    name: str
    type: object
    default: object
    meaning: str = ""
    low: float | None = None
    high: float | None = None
    optional: bool = False
    """Whether it is None, not known, until a person sets it."""

    @property
    def domain(self) -> str:
        """Allowed values in words: `a whole number from 1 to 64`."""
        if get_origin(self.type) is Literal:
            return f"one of {', '.join(get_args(self.type))}"
        low = None if self.low is None else f"{self.low:g}"
        high = None if self.high is None else f"{self.high:g}"
        match low, high:
            case None, None:
                return _KINDS[self.type]
            case _, None:
                return f"{_KINDS[self.type]}, {low} or more"
            case None, _:
                return f"{_KINDS[self.type]}, {high} or less"
        return f"{_KINDS[self.type]} from {low} to {high}"

    def check(self, value: object) -> object:
        """Return a value of the configuration file as the dataclass holds it. Raises ValueError with the domain."""
        if self.type is float:
            if (type(value) is int or type(value) is float) and math.isfinite(value) and self._in_range(value):
                return float(value)
        elif self.type is int:
            if type(value) is int and self._in_range(value):
                return value
        elif self.type == tuple[str, ...]:
            if isinstance(value, list | tuple) and all(type(item) is str for item in value):
                return tuple(value)
        elif type(value) is self.type or (type(value) is str and value in get_args(self.type)):
            return value
        raise ValueError(f"{self.name}: must be {self.domain} (got {value!r})")

    def _in_range(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def options_of(kind: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in its order.

    Raises ValueError for what is no frozen dataclass, a field of another type or without a default, or a default that
    is outside its own bounds.
    """
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ValueError(f"{getattr(kind, '__name__', kind)} must be a frozen dataclass: @dataclass(frozen=True)")
    hints = get_type_hints(kind)
    options = []
    for declared in fields(kind):
        hint, optional = _without_none(hints[declared.name])
        words = get_args(hint) if get_origin(hint) is Literal else ()
        if hint not in _KINDS and not (words and all(type(word) is str for word in words)):
            kinds = "bool, int, float, str, tuple[str, ...], a Literal of texts, int | None or float | None"
            raise ValueError(f"option {declared.name}: use {kinds}")
        if declared.default is MISSING:
            raise ValueError(f"option {declared.name} needs a default")
        bounds = {name: declared.metadata.get(name) for name in ("low", "high")}
        option = Option(
            declared.name, hint, declared.default, declared.metadata.get("meaning", ""), **bounds, optional=optional
        )
        try:
            if not (optional and declared.default is None):
                option.check(option.default)
        except ValueError as error:
            raise ValueError(f"option {error}: its default is not allowed") from None
        options.append(option)
    return tuple(options)


def _without_none(hint: object) -> tuple[object, bool]:
    """Return the type of an option that may be unknown, `float | None`, without its None."""
    types = [argument for argument in get_args(hint) if argument is not NoneType]
    number = types[0] if len(types) == 1 and len(get_args(hint)) == 2 else None
    return (number, True) if number in (int, float) else (hint, False)


def read_options(kind: type[T], values: Mapping[str, object]) -> T:
    """Return an instance of an options dataclass with these values, its defaults elsewhere.

    Raises ValueError that begins with the key that is unknown or of another type or range.
    """
    declared = {option.name: option for option in options_of(kind)}
    checked = {}
    for name, value in values.items():
        if name not in declared:
            raise ValueError(f"{name}: no such option; there are {', '.join(declared)}")
        checked[name] = declared[name].check(value)
    return kind(**checked)


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Values that a person set for one rule: `[rules.quantize-weights]`."""

    rule_id: str
    options: dict[str, object]
    """Plain values, which the rule's own dataclass checks once the rule is loaded."""


def read_rules(value: object) -> tuple[RuleSettings, ...]:
    """Return the tables of a setting, by rule id.

    Raises ValueError for what is no table by id, or a value that no option can have.
    """
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError("must be tables by rule id, each written [rules.ID]")
    for rule_id, row in value.items():
        for key, text in row.items():
            texts = isinstance(text, list) and all(isinstance(item, str) for item in text)
            if not isinstance(text, bool | int | float | str) and not texts:
                raise ValueError(f"{rule_id}.{key}: must be true or false, a number, text or a list of texts")
    return tuple(RuleSettings(rule_id, dict(row)) for rule_id, row in value.items())
