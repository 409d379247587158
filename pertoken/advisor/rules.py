"""Finding and loading rules: by entry point, or from a file of one's own. One bad plugin stops nothing else."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from pertoken.advisor.run import Broken, guarded
from pertoken.errors import BadInput
from pertoken.rule import Rule, rule

GROUP = "pertoken.rules"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A place where a rule was looked for, and what came of it."""

    name: str
    origin: str
    """The distribution and version, or the file."""
    rules: tuple[Rule, ...] = ()
    error: str | None = None
    """Traceback of a failed load."""


def load_rules(extra_files: tuple[Path, ...] = ()) -> tuple[Loaded, ...]:
    """Every rule by entry point, then those in `extra_files`; a later rule of the same id is refused, not mixed.

    Raises BadInput for a file that is not there; whatever a plugin itself raises is kept in its `Loaded`.
    """
    for file in extra_files:
        if not file.is_file():
            raise BadInput(f"--rule {file}: no such file")
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    found: list[Loaded] = []
    taken: dict[str, str] = {}
    for name, origin, load in [
        *((point.name, _origin(point), point.load) for point in points),
        *((file.stem, str(file), lambda file=file: _module(file)) for file in extra_files),
    ]:
        rules = guarded(lambda load=load, taken=taken: _new_rules(load(), taken))  # type: ignore[misc]
        if isinstance(rules, Broken):
            found.append(Loaded(name, origin, error=rules.failed or ": ".join(rules.blocked or ())))
            continue
        taken |= {each.rule_id: origin for each in rules}
        found.append(Loaded(name, origin, rules))
    return tuple(found)


def _new_rules(module: object, taken: Mapping[str, str]) -> tuple[Rule, ...]:
    rules = rules_of(module)
    for each in rules:
        if each.rule_id in taken:
            raise ValueError(f"rule {each.rule_id!r} is already provided by {taken[each.rule_id]}")
    return rules


def rules_of(module: object) -> tuple[Rule, ...]:
    """Rules a module defines (or the one Rule an entry point names). Raises ValueError if there is none."""
    if type(module) is Rule:
        return (_checked(module),)
    rules = tuple(_checked(value) for value in vars(module).values() if type(value) is Rule)
    if not rules:
        raise ValueError(f"{getattr(module, '__name__', module)} defines no rule: use @rule('its-id')")
    return rules


def _checked(found: Rule) -> Rule:
    """Return a rule as the decorator makes it: a plugin can also call `Rule` itself, with anything in it."""
    return rule(found.rule_id)(found.function)


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pertoken_rule_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
