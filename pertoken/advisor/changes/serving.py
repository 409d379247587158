"""Flags of servers that a change starts, and the check that a server serves."""

from collections.abc import Mapping, Sequence
from typing import Any

from pertoken.advisor.groups import Group, shown
from pertoken.catalog import knobs as knob_commands
from pertoken.catalog.engine_lines import health_page
from pertoken.catalog.knobs import like
from pertoken.state.deployment import Deployment
from pertoken.state.knobs import knobs

_SHOWN = ("tp", "pp", "dp", "weight_dtype", "kv_dtype", "max_model_len", "role", "lora_adapters")
"""Knobs in the description of a new deployment."""
_MODELS = "/v1/models"
"""Page of the OpenAI API that an engine without a known page of its health has."""


def health_check(engine: str, servers: str) -> str:
    """Return the command that fails until a server serves; `servers` names whose address is to be filled in."""
    page = health_page(engine) or health_page(like(engine)) or _MODELS
    return f"curl --fail --silent --show-error http://ADDRESS{page}  # ADDRESS: host:port of {servers}"


def new_server_options(deployment: Deployment) -> str:
    """Return the flags of a server that did not run before, as text after its place."""
    flags, rest = [], []
    for name in _SHOWN:
        value = getattr(deployment, name)
        if value is None:
            continue
        spelling = knob_commands.commands(deployment.engine, {name: (None, value)})
        if spelling.manual or any(line.startswith("remove ") for line in spelling.apply):
            rest.append(f"{name}={shown(value)}")
        else:
            flags += [line.removeprefix("set ") for line in spelling.apply]
    return (f" with {' '.join(flags)}" if flags else "") + (f" ({', '.join(rest)})" if rest else "")


def start_options(group: Group) -> tuple[str, str]:
    """Return the flags of the servers that replace a group elsewhere, and those of the present ones, as text."""
    first = group.deployments[0]
    old, new = group.changes.get("engine", (first.engine, first.engine))
    changes = {
        name: pair
        for name, pair in group.changes.items()
        if name in knobs() and knobs()[name].scope == "engine" and name not in ("engine", "engine_version")
    }
    staying = {name: getattr(first, name) for name in knobs() if name not in group.changes}
    after, before = spelled(new, changes, staying)
    version_before, version = group.changes.get("engine_version", (None, None))
    if old != new or version is not None:
        after = f", with {new} {version or ''}".rstrip() + after
        before = f", with {old} {version_before or ''}".rstrip() + before
    for name, (present, proposed) in group.changes.items():
        if name in knobs() and knobs()[name].scope == "device":
            label, unit = knobs()[name].label, knobs()[name].unit
            after += f", {label} of its devices {proposed} {unit}"
            before += f", {label} of its devices " + ("as it was" if present is None else f"{present} {unit}")
    return after, before


def spelled(
    engine: str, changes: Mapping[str, tuple[Any, Any]], staying: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Return changed flags, and the previous ones, as text that continues a line: `, with --a 1, without --b`."""
    spelling = knob_commands.commands(engine, changes, staying)
    restored = [
        f"{knobs()[name].label} as before"
        for name, pair in changes.items()
        if knob_commands.commands(engine, {name: pair}, staying).manual
    ]
    return _continued(spelling.apply, spelling.manual), _continued(spelling.undo, restored)


def _continued(lines: Sequence[str], sentences: Sequence[str]) -> str:
    flags = {verb: [line.removeprefix(verb) for line in lines if line.startswith(verb)] for verb in ("set ", "remove ")}
    parts = [
        f"{word} {' '.join(flags[verb])}" for word, verb in (("with", "set "), ("without", "remove ")) if flags[verb]
    ]
    return "".join(f", {part}" for part in (*parts, *sentences))
