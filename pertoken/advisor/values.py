"""Rebuilding what a rule yielded from plain values, so that nothing else of the rule gets into prices or commands.

A frozen value can still be changed by force, subclassed, or filled with anything by `dataclasses.replace`. Every value
is therefore made again by its own constructor, from parts of exactly the types that its fields declare.
"""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pertoken.state.errors import InvalidEdit

MAX_INT = 2**63 - 1
MAX_TEXT = 10_000
MAX_ITEMS = 100_000


def type_name(value: object) -> str:
    """Return the name of a value's type without running code of a metaclass."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return storable(name)


def rebuilt(value: Any, declared: Any) -> Any:
    """Return an equal value of the declared type. Raises InvalidEdit naming the field of another type or size."""
    return _rebuild(declared)(value, getattr(declared, "__name__", "it").lower())


_Rebuild = Callable[[Any, str], Any]


@cache
def _rebuild(declared: Any) -> _Rebuild:
    """Return the function that rebuilds values of a declared type."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is tuple:
        return _sequence(arguments)
    if origin is frozenset:
        return _set(arguments[0])
    if is_dataclass(declared) and isinstance(declared, type):
        return _record(declared)
    if isinstance(declared, type) and issubclass(declared, Enum):
        return _exactly(declared)
    return _PLAIN[declared]


def _wrong(where: str, value: object, wanted: str) -> InvalidEdit:
    return InvalidEdit(f"{where} must be {wanted}, not {type_name(value)}")


def _exactly(kind: type) -> _Rebuild:
    def rebuild(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise _wrong(where, value, kind.__name__)
        return value

    return rebuild


def _int(value: Any, where: str) -> int:
    if type(value) is not int:
        raise _wrong(where, value, "a whole number")
    if abs(value) > MAX_INT:
        raise InvalidEdit(f"{where} is a number of more than 63 bits")
    return value


def _float(value: Any, where: str) -> float | int:
    if type(value) is int:
        return _int(value, where)
    if type(value) is not float or not math.isfinite(value):
        raise InvalidEdit(f"{where} must be a finite number")
    return value


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        raise _wrong(where, value, "text")
    if len(value) > MAX_TEXT:
        raise InvalidEdit(f"{where} is a text of more than {MAX_TEXT:,} characters")
    if storable(value) != value:
        raise InvalidEdit(f"{where} is a text that cannot be stored: it has a NUL or a lone surrogate")
    return value


def storable(text: str) -> str:
    """Return a text as both databases take it: NUL and lone surrogates written out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


_PLAIN: dict[Any, _Rebuild] = {
    int: _int,
    float: _float,
    str: _text,
    bool: _exactly(bool),
    NoneType: _exactly(NoneType),
}


def _union(options: tuple[Any, ...]) -> _Rebuild:
    by_type: dict[type, _Rebuild] = {}
    for option in options:
        kind = get_origin(option) or option
        by_type[kind] = _rebuild(option)
        if option is float:
            by_type.setdefault(int, _rebuild(option))
    wanted = " or ".join("None" if each is NoneType else each.__name__ for each in by_type)

    def rebuild(value: Any, where: str) -> Any:
        for kind, option in by_type.items():
            if type(value) is kind:  # no lookup by hash: a metaclass may define its own
                return option(value, where)
        raise _wrong(where, value, wanted)

    return rebuild


def _sequence(items: tuple[Any, ...]) -> _Rebuild:
    parts = [_rebuild(each) for each in items if each is not Ellipsis]
    any_length = Ellipsis in items

    def rebuild(value: Any, where: str) -> Any:
        if type(value) is not tuple:
            raise _wrong(where, value, "a tuple")
        if len(value) > MAX_ITEMS or (not any_length and len(value) != len(parts)):
            raise InvalidEdit(f"{where} has {len(value):,} items")
        if any_length:
            return tuple([parts[0](each, where) for each in value])
        return tuple([part(each, where) for part, each in zip(parts, value, strict=True)])

    return rebuild


def _set(item: Any) -> _Rebuild:
    part = _rebuild(item)

    def rebuild(value: Any, where: str) -> Any:
        if type(value) is not frozenset:
            raise _wrong(where, value, "a frozenset")
        if len(value) > MAX_ITEMS:
            raise InvalidEdit(f"{where} has {len(value):,} items")
        return frozenset(part(each, where) for each in value)

    return rebuild


def _record(kind: type) -> _Rebuild:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    parts: list[tuple[str, _Rebuild]] = []

    def rebuild(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise _wrong(where, value, f"a {kind.__name__}")
        if not parts:  # made at first use: a type may hold itself
            parts.extend((name, _rebuild(hints[name])) for name in names)
        values = {name: part(getattr(value, name), f"{where}.{name}") for name, part in parts}
        return kind(**values)

    return rebuild
