"""States as JSON values: each as its difference from the present fleet.

`sent_state` writes without validation. `state_of` accepts only values of exactly the declared types, and calls the
constructors of the states.

    {"deployment": 7, "set": {"tp": 1, "weight_dtype": "fp8"}}
    {"deployment": 7, "set": {"device_ids": [], "placement": {"purchase": "spot"}}}
    {"service": "chat", "set": {"replicas": "fewest", "deployments": {"changed": [[7, {"tp": 1}]]}}}
    {"fleet": 0, "set": {"hosts": {"removed": [9]}, "devices": {"removed": [10, 11]}}}
    {"deployment": 7, "set": {}, "edited": ["tp"]}
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pertoken.state.deployment import Deployment, InvalidEdit
from pertoken.state.fleet import Device, Fleet, Host
from pertoken.state.service import Service

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")
Json = dict[str, object]
MAX_INT = 2**63 - 1
MAX_TEXT = 10_000
MAX_ITEMS = 100_000

_KEYS: Mapping[type, str] = {Service: "name", Deployment: "deployment_id", Host: "host_id", Device: "device_id"}
"""Identifying field of each record type that occurs in lists of a state."""
_NO_VALUE = "!"
"""Key of an object that stands for a value without a JSON form; it holds the name of the type."""


# -- texts --------------------------------------------------------------------------------------------------------


def type_name(value: object) -> str:
    """Return the name of a value's type without running code of a metaclass."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return storable(name)


def storable(text: str) -> str:
    """Return a text with NUL and lone surrogates escaped, so that both databases can store it."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


# -- writing ------------------------------------------------------------------------------------------------------


def sent_state(state: Deployment | Service | Fleet, present: Fleet) -> Json:
    """Return a state as its difference from `present`.

    Raises InvalidEdit for a service or deployment that `present` does not have.
    """
    sent: Json
    if isinstance(state, Deployment):
        sent, changes = {"deployment": state.deployment_id}, _changes(present.deployment(state.deployment_id), state)
    elif isinstance(state, Service):
        sent, changes = {"service": state.name}, _changes(present.service(state.name), state)
    else:
        sent, changes = {"fleet": 0}, _changes(present, state)
    sent["set"] = changes
    if changes.keys() <= {"replicas"} and (edited := list(_edited(state))):
        sent["edited"] = edited  # if it changes nothing, the refusal gives the present values of these knobs
    return sent


def _edited(state: Deployment | Service | Fleet) -> dict[str, None]:
    """Return the knobs that edits of a state set, each once."""
    deployments = (state,) if isinstance(state, Deployment) else state.deployments
    return {str(name): None for deployment in deployments for name in deployment.edited}


def _changes(present: object, proposed: object) -> Json:
    kind: type = type(present)
    names, values = _fields(kind)
    changed: Json = {}
    befores, afters = values(present), values(proposed)
    # Edits leave most fields as they are: these are passed over without a step of Python for each.
    for field in compress(range(len(names)), map(is_not, befores, afters)):
        name, old, new = names[field], befores[field], afters[field]
        if type(old) is type(new) and old == new:
            continue
        kind_of_list = _LISTS.get(name)
        if kind_of_list is not None and type(old) is type(new) is tuple:
            changed[name] = _list_changes(old, new, kind_of_list)
        elif is_dataclass(new) and type(old) is type(new):
            changed[name] = _changes(old, new)
        else:
            changed[name] = json_value(new)
    return changed


@cache
def _fields(kind: type) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:
    """Return the names of a record's fields, and a getter of all of them."""
    names = tuple(field.name for field in fields(kind) if field.compare)
    return names, attrgetter(*names)


_LISTS: Mapping[str, type] = {"services": Service, "deployments": Deployment, "hosts": Host, "devices": Device}
"""Kind of the records of each list of a state."""


def _list_changes(present_records: Iterable[object], proposed_records: Iterable[object], kind: type) -> Json:
    key = _KEYS[kind]
    unmatched = {getattr(record, key): record for record in present_records}
    changed, added = [], []
    for record in proposed_records:
        present_record = unmatched.pop(getattr(record, key), None) if type(record) is kind else None
        if present_record is None:
            added.append(json_value(record))
        elif present_record is not record and (differing := _changes(present_record, record)):
            changed.append([getattr(record, key), differing])
    sent: dict[str, list[object]] = {"removed": list(unmatched), "changed": [*changed], "added": added}
    return {name: records for name, records in sent.items() if records}


def json_value(value: object) -> object:
    """Return a value as JSON values; an object with the name of its type where it has no JSON form."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Enum):
        return value.value
    if type(value) is tuple or type(value) is frozenset:  # a state has no lists and sets
        return [json_value(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in fields(value) if field.compare}
    return {_NO_VALUE: type_name(value)}


# -- reading ------------------------------------------------------------------------------------------------------


def state_of(sent: Mapping[str, object], present: Fleet) -> Deployment | Service | Fleet:
    """Return a state from received values, each validated. Raises InvalidEdit that names the invalid field."""
    changes = sent.get("set")
    if "deployment" in sent:
        return _changed(present.deployment(_int(sent["deployment"], "deployment")), changes, "deployment")
    if "service" in sent:
        return _changed(present.service(_text(sent["service"], "service")), changes, "service")
    return _changed(present, changes, "fleet")


def _changed(present: Record, sent: object, where: str) -> Record:
    return _with(present, _values(present, sent, where))


def _with(record: Record, values: Json) -> Record:
    return replace(record, **values) if values else record


def _values(record: "DataclassInstance", sent: object, where: str) -> Json:
    hints = field_types(type(record))
    values: Json = {}
    for name, value in _mapping(sent, where).items():
        if name not in hints:
            raise InvalidEdit(f"{where} has no field {storable(name)[:99]!r}")
        old, kind, path = getattr(record, name), _LISTS.get(name), f"{where}.{name}"
        if type(value) is not dict or _NO_VALUE in value:
            values[name] = _reader(hints[name])(value, path)
        elif kind is not None:
            values[name] = _changed_list(old, value, kind, path)
        elif is_dataclass(old) and not isinstance(old, type):
            values[name] = _changed(old, value, path)
        else:
            values[name] = _reader(hints[name])(value, path)
    return values


def _changed_list(
    present_records: "Iterable[DataclassInstance]", sent: object, kind: type, where: str
) -> tuple[object, ...]:
    key, name = _KEYS[kind], kind.__name__.lower()
    records = {getattr(record, key): record for record in present_records}
    lists = _mapping(sent, where)
    for removed in _items(lists.get("removed", []), where):
        if records.pop(_key(removed, where), None) is None:
            raise InvalidEdit(f"{where} has no {removed}")
    read: tuple[object, Json, Json] | None = None
    for pair in _items(lists.get("changed", []), where):
        record_key, changes = pair if type(pair) is list and len(pair) == 2 else (None, {})
        if _key(record_key, where) not in records:
            raise InvalidEdit(f"{where} has no {record_key}")
        record = records[record_key]
        # Replicas change alike as a rule: then one has the same values as the next.
        if read is None or changes != read[1] or not _same_parts(record, read[0], changes):
            read = record, changes, _values(record, changes, name)
        records[record_key] = _with(record, read[2])
    added = (_reader(kind)(item, name) for item in _items(lists.get("added", []), where))
    return (*records.values(), *added)


def _same_parts(record: object, rebuilt: object, changes: Json) -> bool:
    """Return whether two records are equal where only a part of a field changes."""
    return all(
        getattr(record, name) == getattr(rebuilt, name) for name, value in changes.items() if type(value) is dict
    )


def _key(value: object, where: str) -> int | str:
    if type(value) is int or type(value) is str:
        return value
    raise _wrong(where, value, "a list of ids")


@cache
def field_types(kind: type) -> Mapping[str, object]:
    """Return the declared types of a record's fields by their names."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.compare}


def _wrong(where: str, value: object, wanted: str) -> InvalidEdit:
    name = value.get(_NO_VALUE) if type(value) is dict else None
    actual = storable(name)[:99] if isinstance(name, str) else _NAMES.get(type(value)) or type_name(value)
    return InvalidEdit(f"{where} must be {wanted}, not {actual}")


_NAMES = {dict: "an object", list: "a list", NoneType: "None"}


def _mapping(value: object, where: str) -> Json:
    if type(value) is not dict or _NO_VALUE in value:
        raise _wrong(where, value, "an object")
    return value


def _items(value: object, where: str) -> list[object]:
    if type(value) is not list:
        raise _wrong(where, value, "a list")
    if len(value) > MAX_ITEMS:
        raise InvalidEdit(f"{where} has {len(value):,} items")
    return value


def read_value(declared: object, value: object, where: str) -> Any:
    """Return a received value converted to a type that is known only at run time."""
    return _reader(declared)(value, where)


_Reader = Callable[[object, str], object]
"""Function that checks and converts a received value; its second argument names the field in errors."""


@cache
def _reader(declared: object) -> _Reader:
    """Return the function that converts received values to a declared type."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is tuple:
        return _sequence(arguments)
    if origin is frozenset:
        item = _reader(arguments[0])
        return lambda value, where: frozenset([item(item_value, where) for item_value in _items(value, where)])
    if isinstance(declared, type) and is_dataclass(declared):
        return _record(declared)
    if isinstance(declared, type) and issubclass(declared, Enum):
        return _enum(declared)
    return _PLAIN[declared]


def _exactly(kind: type) -> _Reader:
    def read(value: object, where: str) -> object:
        if type(value) is not kind:
            raise _wrong(where, value, kind.__name__)
        return value

    return read


def _int(value: object, where: str) -> int:
    if type(value) is not int:
        raise _wrong(where, value, "a whole number")
    if abs(value) > MAX_INT:
        raise InvalidEdit(f"{where} is a number with more than 63 bits")
    return value


def _float(value: object, where: str) -> float | int:
    if type(value) is int:
        return _int(value, where)
    if type(value) is not float or not math.isfinite(value):
        raise InvalidEdit(f"{where} must be a finite number")
    return value


def _text(value: object, where: str) -> str:
    if type(value) is not str:
        raise _wrong(where, value, "text")
    if len(value) > MAX_TEXT:
        raise InvalidEdit(f"{where} is a text with more than {MAX_TEXT:,} characters")
    if storable(value) != value:
        raise InvalidEdit(f"{where} is a text that cannot be stored: it has a NUL or a lone surrogate")
    return value


_PLAIN: Mapping[object, _Reader] = {
    int: _int,
    float: _float,
    str: _text,
    bool: _exactly(bool),
    NoneType: _exactly(NoneType),
}


def _enum(kind: type[Enum]) -> _Reader:
    def read(value: object, where: str) -> object:
        if type(value) not in (int, str) or value not in [member.value for member in kind]:
            raise _wrong(where, value, f"a {kind.__name__}")
        return kind(value)

    return read


_SENT_AS: Mapping[object, object] = {tuple: list, frozenset: list}


def _union(options: tuple[object, ...]) -> _Reader:
    by_type: dict[object, _Reader] = {}
    for option in options:
        kind = get_origin(option) or option
        by_type[_SENT_AS.get(kind, dict if is_dataclass(kind) else kind)] = _reader(option)
        if option is float:
            by_type.setdefault(int, _reader(option))
    names = (getattr(get_origin(option) or option, "__name__", str(option)) for option in options)
    wanted = " or ".join("None" if name == "NoneType" else name for name in names)

    def read(value: object, where: str) -> object:
        reader = by_type.get(type(value))
        if reader is None or (type(value) is dict and _NO_VALUE in value):
            raise _wrong(where, value, wanted)
        return reader(value, where)

    return read


def _sequence(items: tuple[object, ...]) -> _Reader:
    parts = [_reader(item) for item in items if item is not Ellipsis]
    any_length = Ellipsis in items

    def read(value: object, where: str) -> object:
        if type(value) is not list:
            raise _wrong(where, value, "a tuple")
        if not any_length and len(value) != len(parts):
            raise InvalidEdit(f"{where} has {len(value):,} items")
        if any_length:
            return tuple([parts[0](item, where) for item in _items(value, where)])
        return tuple([part(item, where) for part, item in zip(parts, value, strict=True)])

    return read


def _record(kind: type) -> _Reader:
    def read(value: object, where: str) -> object:
        if type(value) is not dict or set(value) != set(field_types(kind)):
            raise _wrong(where, value, f"a {kind.__name__}")
        return kind(**{name: _reader(hint)(value[name], f"{where}.{name}") for name, hint in field_types(kind).items()})

    return read
