"""Finding and loading rules: by entry point, or from a file of one's own. One bad plugin stops nothing else."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from pertoken.advisor.worker.source import Source
from pertoken.errors import BadInput
from pertoken.rule import Rule, rule

GROUP = "pertoken.rules"
OWN = "pertoken"
"""The distribution of the built-in rules. They are found first, so that no other rule takes the id of one."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A place where a rule was looked for, and what came of it."""

    name: str
    origin: str
    """The distribution and version, or the file."""
    rules: tuple[Rule, ...] = ()
    error: str | None = None
    """Why rules of it do not run."""


def find_rules(extra_files: tuple[Path, ...] = ()) -> tuple[Source, ...]:
    """Return every entry point, the built-in ones first, then `extra_files`; nothing of them is imported.

    Raises BadInput for a file that is not there.
    """
    for file in extra_files:
        if not file.is_file():
            raise BadInput(f"--rule {file}: no such file")
    installed = [_installed(point) for point in entry_points(group=GROUP)]
    installed.sort(key=lambda each: (each.group != OWN, each.group, each.name))
    return (*installed, *map(_of_file, extra_files))


def load_rules(extra_files: tuple[Path, ...] = ()) -> tuple[Loaded, ...]:
    """Load every rule in this process, for plugins that are trusted. Raises whatever they raise."""
    return tuple(Loaded(each.name, each.origin, part.rules) for each in find_rules(extra_files) for part in each.load())


def _installed(point: EntryPoint) -> Source:
    group, version = (point.dist.name, f" {point.dist.version}") if point.dist else (point.value, "")
    return _source(point.name, f"{group}{version}", group, point.load)


def _of_file(file: Path) -> Source:
    return _source(file.stem, str(file), str(file), lambda: _module(file))


def _source(name: str, origin: str, group: str, load: Callable[[], object]) -> Source:
    return Source(name, origin, group, lambda: (Loaded(name, origin, rules_of(load())),))


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


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pertoken_rule_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
