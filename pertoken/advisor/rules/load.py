"""Load the rules of a plugin. This runs its code; use `source_of` to do that in a worker."""

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import ModuleType

from pertoken.advisor.rules.discovery import Permission, Plugin, disabled
from pertoken.advisor.worker.child import Source
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.rule import Rule, rule
from pertoken.store.schema.shared import stable_id

OWN_RULES = "pertoken.plugins."
"""Where the modules of this program's rules are."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result of loading a plugin."""

    name: str
    """Name of the plugin, or the id of a rule with invalid options."""
    origin: str
    """The distribution and version, or the file."""
    rules: tuple[Rule, ...] = ()
    """Rules to run, with their configured options."""
    error: str | None = None
    """Traceback of a failed load, or one line on why it was not loaded."""
    plugin: Plugin | None = None
    disabled: tuple[Rule, ...] = ()
    """Rules that a person switched off by id; they were loaded with the others of the plugin."""


def load(plugin: Plugin, settings: Settings) -> tuple[Loaded, ...]:
    """Run the module of a plugin, if permitted; return its rules, then one error for each rule with invalid options.

    Raises whatever the module raises, ValueError if it defines no rule.
    """
    if plugin.permission is not Permission.ALLOWED:
        return (Loaded(plugin.name, plugin.origin, error=plugin.fault, plugin=plugin),)
    rules = rules_of(_module_of(plugin))
    off = () if plugin.tried else disabled(settings.folder)
    running, wrong = [], []
    for declared in rules:
        if declared.rule_id in off:
            continue
        configured = _configured(declared, settings)
        if isinstance(configured, Rule):
            running.append(configured)
        else:
            wrong.append(Loaded(declared.rule_id, plugin.origin, error=configured, plugin=plugin))
    switched_off = tuple(rule for rule in rules if rule.rule_id in off)
    return Loaded(plugin.name, plugin.origin, tuple(running), plugin=plugin, disabled=switched_off), *wrong


def source_of(plugin: Plugin, settings: Settings) -> Source:
    """Return the source by which a worker loads a plugin; plugins of one distribution share a worker."""
    group = plugin.distribution or plugin.origin
    # By the module, which is in this package: a distribution may take any name.
    own = plugin.entry_point is not None and plugin.entry_point.module.startswith(OWN_RULES)
    return Source(plugin.name, plugin.origin, group, partial(load, plugin, settings), own)


def unknown_options(names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Return one line for each table `[rules.ID]` whose id is not among `names`."""
    known = set(names)
    lines = []
    for row in settings.rules:
        if row.rule_id not in known:
            close = get_close_matches(row.rule_id, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`pertoken rules list` lists the rules"
            lines.append(f"{settings.set_by.get('rules', 'rules')}.{row.rule_id}: no rule has this id ({hint})")
    return tuple(lines)


def rules_of(module: object) -> tuple[Rule, ...]:
    """Return the rules that a module defines, or the one Rule an entry point names. Raises ValueError for none."""
    if type(module) is Rule:
        return (_checked(module),)
    rules = tuple(_checked(value) for value in vars(module).values() if type(value) is Rule)
    if not rules:
        raise ValueError(f"{getattr(module, '__name__', module)} defines no rule: use @rule('its-id')")
    return rules


def rules_in(file: Path) -> tuple[Rule, ...]:
    """Run a file and return its rules. Raises ValueError for none, and whatever the file raises."""
    return rules_of(_module(file))


def _configured(loaded: Rule, settings: Settings) -> Rule | str:
    """Return a rule with its configured options, or one line that names the invalid key."""
    values = next((rule.options for rule in settings.rules if rule.rule_id == loaded.rule_id), None)
    if not values:
        return loaded
    try:
        return loaded.configured(values)
    except ValueError as error:
        return f"{settings.set_by.get('rules', 'rules')}.{loaded.rule_id}.{error}"


def _checked(value: Rule) -> Rule:
    """Return a rule made again by the decorator, because a plugin can also call `Rule` with any values."""
    return rule(value.rule_id, window=value.window, series=value.series)(value.function)


def _module_of(plugin: Plugin) -> object:
    if plugin.entry_point is not None:
        return plugin.entry_point.load()
    if plugin.file is None:
        raise BadInput(f"{plugin.origin} is neither a file nor an entry point")
    return _module(plugin.file)


def _module(file: Path) -> ModuleType:
    # Files in two folders may have one name, and dataclasses find their module by name: make the name unique.
    name = f"pertoken_rule_{stable_id('rule file', str(file.resolve())) % 2**64:x}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
