"""The part of Go's templates that the chart uses, and Helm itself where it is installed."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml

from tests.deploy.kustomize import Manifest

_TAG = re.compile(r"\{\{(-?)\s*((?:`[^`]*`|[^`}])*?)\s*(-?)\}\}")
_RANGE = re.compile(r"range (?:(\$\w+), )?(\$\w+) := (\S+)")
RELEASE = {"Name": "pertoken", "Namespace": "monitoring"}


def rendered(chart: Path, **values: Any) -> list[Manifest]:
    """Return the manifests of a chart with these values over its own, checked by its schema."""
    merged = _merged(yaml.safe_load((chart / "values.yaml").read_text()), values)
    jsonschema.validate(merged, json.loads((chart / "values.schema.json").read_text()))
    scope = {"$": {"Values": merged, "Release": RELEASE}}
    texts = [_text(file.read_text(), scope) for file in sorted(chart.glob("templates/*.yaml"))]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest is not None]


def by_helm(chart: Path, values: Path) -> list[Manifest] | None:
    """Return what Helm itself renders; None where it is not installed."""
    if shutil.which("helm") is None:
        return None
    command = ["helm", "template", RELEASE["Name"], str(chart), "--namespace", RELEASE["Namespace"], "-f", str(values)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest is not None]


def _merged(own: Any, given: Any) -> Any:
    if not isinstance(own, dict) or not isinstance(given, Mapping):
        return given
    return own | {key: _merged(own.get(key), value) for key, value in given.items()}


def _text(template: str, scope: Mapping[str, Any]) -> str:
    parts: list[str] = []
    end = 0
    for tag in _TAG.finditer(template):
        before = template[end : tag.start()]
        parts += [before.rstrip() if tag[1] else before, tag[2]]
        end = tag.end()
        if tag[3]:
            end += len(template[end:]) - len(template[end:].lstrip())
    pieces = iter([*parts, template[end:]])
    text, closed = _block(list(pieces), 0, scope)
    assert closed is None, "an `end` closes no block"
    return text


def _block(pieces: list[str], at: int, scope: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the text from a piece on, and the piece after the `end` that closes it; None at the end of all."""
    text = ""
    while at < len(pieces):
        text += pieces[at]
        if at + 1 == len(pieces):
            return text, None
        tag, at = pieces[at + 1], at + 2
        if tag == "end":
            return text, at
        if not tag.startswith(("range ", "if ")):
            text += _value(tag, scope)
            continue
        inner = ""
        for scoped in _scopes(tag, scope):
            part, _ = _block(pieces, at, scoped)
            inner += part
        text += inner
        at = _after(pieces, at)
    return text, None


def _after(pieces: list[str], at: int) -> int:
    """Return the piece after the `end` of the block that begins at a piece."""
    depth = 1
    while depth:
        tag, at = pieces[at + 1], at + 2
        depth += tag.startswith(("range ", "if ")) - (tag == "end")
    return at


def _scopes(tag: str, scope: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the variables of each pass through a block."""
    if tag.startswith("if "):
        if _read(tag.removeprefix("if "), scope):
            yield scope
        return
    match = _RANGE.fullmatch(tag)
    assert match, f"this renderer does not know {tag!r}"
    key, name, values = match[1], match[2], _read(match[3], scope)
    pairs = sorted(values.items()) if isinstance(values, dict) else enumerate(values)
    for index, value in pairs:
        yield {**scope, name: value} | ({key: index} if key else {})


def _value(tag: str, scope: Mapping[str, Any]) -> str:
    if tag.startswith("`"):
        return tag.strip("`")
    if tag.startswith("toJson "):
        return json.dumps(_read(tag.removeprefix("toJson "), scope), sort_keys=True)
    expression, _, function = tag.partition(" | ")
    assert function in ("", "quote"), f"this renderer does not know {tag!r}"
    value = _read(expression, scope)
    assert isinstance(value, str | bool | int), f"{expression} is no scalar"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return json.dumps(text) if function else text


def _read(path: str, scope: Mapping[str, Any]) -> Any:
    """Return the value at a path; None where the last part is not there, as Go's templates do for maps."""
    first, *rest = path.split(".")
    value = scope["$" if first in ("", "$") else first]
    for number, part in enumerate(rest, 1):
        assert part in value or number == len(rest), f"{path} is not there"
        value = value.get(part)
    return value
