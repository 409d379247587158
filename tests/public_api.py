"""Names and signatures of what plugins import, as text: `python -m tests.public_api` rewrites the golden file."""

import inspect
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pertoken.rule
import pertoken.testing

GOLDEN = Path(__file__).with_name("public_api.txt")


def text() -> str:
    """Return every public name of `pertoken.rule` and `pertoken.testing`, with fields, methods and parameters."""
    return "\n".join(line for module in (pertoken.rule, pertoken.testing) for line in (*_module(module), ""))


def _module(module: ModuleType) -> list[str]:
    lines = [f"[{module.__name__}]"]
    for name in sorted(module.__all__):
        lines += _value(name, getattr(module, name))
    return lines


def _value(name: str, value: object) -> list[str]:
    if not inspect.isclass(value):
        return [f"{name}{_signature(value)}" if callable(value) else f"{name}: {type(value).__name__}"]
    lines = [f"class {name}"]
    if issubclass(value, Exception):
        return lines
    if is_dataclass(value):
        types = get_type_hints(value)
        for field in fields(value):
            default = field.default is not MISSING or field.default_factory is not MISSING
            lines.append(f"    {field.name}: {_shown(types[field.name])}{' = ...' if default else ''}")
    for member_name, member in sorted(vars(value).items()):
        if member_name.startswith("_") and member_name not in ("__init__", "__call__"):
            continue
        if isinstance(member, property):
            lines.append(f"    {member_name} -> {_shown(_signature(member.fget).return_annotation)}")
        elif inspect.isfunction(member) and not (member_name == "__init__" and is_dataclass(value)):
            lines.append(f"    {member_name}{_signature(member)}")
        elif issubclass(value, Enum) and isinstance(member, value):
            lines.append(f"    {member_name}")
    return lines


def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function, eval_str=True)


def _shown(annotation: object) -> str:
    return inspect.formatannotation(annotation)


if __name__ == "__main__":
    GOLDEN.write_text(text())
