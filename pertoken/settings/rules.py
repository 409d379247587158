"""Options of a rule: fields of a frozen dataclass, which a person sets in `[rules.ID]` of the configuration file."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

_KINDS: Mapping[Any, str] = {
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
    type: Any
    default: Any
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

    def check(self, value: object) -> Any:
        """Return a value of the configuration file as the dataclass holds it. Raises ValueError with the domain."""
        if get_origin(self.type) is Literal:
            fits = type(value) is str and value in get_args(self.type)
        elif self.type is float:
            fits = type(value) in (int, float) and math.isfinite(value) and self._in_range(value)  # type: ignore[arg-type]
            value = float(value) if fits else value  # type: ignore[arg-type]
        elif self.type is int:
            fits = type(value) is int and self._in_range(value)
        elif self.type == tuple[str, ...]:
            fits = isinstance(value, list | tuple) and all(type(item) is str for item in value)
            value = tuple(value) if fits else value  # type: ignore[arg-type]
        else:
            fits = type(value) is self.type
        if not fits:
            raise ValueError(f"{self.name}: must be {self.domain} (got {value!r})")
        return value

    def _in_range(self, value: Any) -> bool:
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


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return the type of an option that may be unknown, `float | None`, without its None."""
    known = [argument for argument in get_args(hint) if argument is not NoneType]
    number = known[0] if len(known) == 1 and len(get_args(hint)) == 2 else None
    return (number, True) if number in (int, float) else (hint, False)


def read_options(kind: type, values: Mapping[str, object]) -> Any:
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
