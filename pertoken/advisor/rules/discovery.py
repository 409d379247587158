"""Discovery of plugins, permission to load each, and loading of their rules. Only `load` runs code of a plugin."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, partial
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from pertoken.advisor.worker.child import Loaded
from pertoken.advisor.worker.child import PluginSource as PluginSource
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.rule import Rule, rule
from pertoken.settings.values import APP
from pertoken.store.schema.shared import stable_id

SWITCHES = "disabled-rules.txt"
"""File of rules that a person switched off, in the folder of the configuration."""
_HEADER = "# Rules that pertoken does not run, one id per line. Written by `pertoken rules enable|disable`.\n"


def disabled(folder: Path) -> tuple[str, ...]:
    """Return the disabled names in the configuration's folder. Raises BadInput for a file that cannot be read."""
    file = folder / SWITCHES
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: cannot be read: {error}; fix or delete it") from None
    names = (line.partition("#")[0].strip() for line in lines)
    return tuple(dict.fromkeys(name for name in names if name))


def disable(folder: Path, name: str) -> None:
    """Add a name to the file. Raises OSError if it cannot be written."""
    _write(folder, (*disabled(folder), name))


def enable(folder: Path, name: str) -> None:
    """Remove a name from the file. Raises OSError if it cannot be written."""
    _write(folder, tuple(switched_off for switched_off in disabled(folder) if switched_off != name))


def _write(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / SWITCHES
    new = file.with_suffix(".new")
    new.write_text(_HEADER + "".join(f"{name}\n" for name in dict.fromkeys(names)), encoding="utf-8")
    new.replace(file)  # a concurrent run reads the old or the new list, never a partial one


GROUP = "pertoken.rules"
DROP_IN = "rules.d"
"""Folder beside the configuration file; every run loads its files."""


class Permission(StrEnum):
    """Permission to load the rules of a plugin."""

    ALLOWED = "allowed"
    DISABLED = "disabled"
    """Switched off by a person."""
    DENIED = "denied"
    """Denied by the lists of distributions, or because other users can write the file."""
    MISSING = "missing"
    """A setting names a file that does not exist."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One module that holds rules, by entry point or as a file, before any of its code has run."""

    name: str
    """Name of the entry point, or of the file without its suffix."""
    origin: str
    """The distribution and version, or the file."""
    distribution: str | None = None
    version: str | None = None
    entry_point: EntryPoint | None = None
    file: Path | None = None
    """None for an entry point."""
    permission: Permission = Permission.ALLOWED
    reason: str | None = None
    """Why it may not be loaded, and how to change that."""
    tried: bool = False
    """Whether it was named for this run only: it runs even if it is switched off."""

    @property
    def fault(self) -> str | None:
        """Return why a requested file cannot run; None if it can, or if a setting excludes it on purpose."""
        unwanted = self.permission is Permission.MISSING or (self.file and self.permission is Permission.DENIED)
        return self.reason if unwanted else None


def find_rules(settings: Settings, tried: Iterable[Path] = ()) -> tuple[Plugin, ...]:
    """Return every plugin: installed packages, the drop-in folder, `advisor.rules`, then `tried` files.

    Raises BadInput for a tried file that does not exist, or a list of disabled rules that cannot be read.
    """
    tried = tuple(tried)
    for file in tried:
        if not file.is_file():  # a file in an unreadable folder raises OSError
            raise BadInput(f"--rule {file}: no such file")
    drop_in = settings.folder / DROP_IN
    drop_ins = _of_folder(drop_in) if drop_in.is_dir() else ()
    off = set(disabled(settings.folder))
    kept = [
        replace(
            plugin,
            permission=Permission.DISABLED,
            reason=f"switched off; `pertoken rules enable {plugin.name}` switches it on",
        )
        if plugin.name in off
        else plugin
        for plugin in (*_allowed(installed(), settings), *drop_ins, *_named(settings))
    ]
    tried_plugins = tuple(Plugin(file.stem, str(file), file=file, tried=True) for file in tried)
    # A tried file replaces an installed one of the same name, because both define the same rule ids.
    names = {file.name for file in tried}
    return (*(plugin for plugin in kept if plugin.file is None or plugin.file.name not in names), *tried_plugins)


def installed() -> tuple[Plugin, ...]:
    """Return the plugins of installed distributions, the built-in ones first, so that no other rule takes their ids."""
    origin_of = cache(_origin_of)  # reading a distribution's name or version parses its metadata each time
    plugins = [
        Plugin(point.name, origin or point.value, distribution, version, entry_point=point)
        for point in entry_points(group=GROUP)
        for origin, distribution, version in [origin_of(point.dist)]
    ]
    return tuple(
        sorted(plugins, key=lambda plugin: (plugin.distribution != APP, plugin.distribution or "", plugin.name))
    )


def _origin_of(installed: Distribution | None) -> tuple[str | None, str | None, str | None]:
    """Return the name with the version of a distribution, its name, and its version."""
    if installed is None:
        return None, None, None
    metadata = installed.metadata
    name, version = metadata["Name"], metadata["Version"]
    return f"{name} {version}", name, version


def _allowed(plugins: Iterable[Plugin], settings: Settings) -> Iterator[Plugin]:
    denied = {_normal(name) for name in settings.advisor_deny}
    allowed = None if settings.advisor_allow is None else {APP, *map(_normal, settings.advisor_allow)}
    for plugin in plugins:
        distribution = _normal(plugin.distribution or "")
        if distribution in denied:
            yield replace(plugin, permission=Permission.DENIED, reason=f"advisor.deny names {plugin.distribution}")
        elif allowed is not None and distribution not in allowed:
            reason = f"advisor.allow does not name {plugin.distribution or plugin.origin}"
            yield replace(plugin, permission=Permission.DENIED, reason=reason)
        else:
            yield plugin


def _normal(distribution: str) -> str:
    """Return a distribution's name as package indexes compare it (packaging.python.org, name normalization)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _named(settings: Settings) -> Iterator[Plugin]:
    for text in settings.advisor_rules:
        try:
            path = settings.folder / Path(text).expanduser()
            is_folder, is_file = path.is_dir(), path.is_file()
        except (OSError, RuntimeError) as error:  # an unreadable folder, or an unknown user
            path, is_folder, is_file, why = Path(text), False, False, str(error)
        else:
            why = "no such file or folder"
        if is_folder:
            yield from _of_folder(path)
        elif is_file:
            yield _of_file(path)
        else:
            reason = f"{path}: {why}; {settings.set_by.get('advisor_rules', 'advisor.rules')} names it"
            yield Plugin(path.stem, str(path), file=path, permission=Permission.MISSING, reason=reason)


def _of_folder(folder: Path) -> Iterator[Plugin]:
    try:
        files = sorted(path for path in folder.glob("*.py") if not path.name.startswith(("_", ".")))
        untrusted = _untrusted(folder)
    except OSError as error:
        files, untrusted = [], f"{folder}: cannot be read: {(error.strerror or str(error)).lower()}"
    if untrusted is not None:
        yield Plugin(folder.name, str(folder), file=folder, permission=Permission.DENIED, reason=untrusted)
        return
    yield from map(_of_file, files)


def _of_file(file: Path) -> Plugin:
    plugin = Plugin(file.stem, str(file), file=file)
    try:
        # The target of a link is only as safe as its own folder.
        untrusted = _untrusted(file) or _untrusted(file.resolve().parent)
    except OSError as error:
        untrusted = f"{file}: cannot be read: {(error.strerror or str(error)).lower()}"
    return plugin if untrusted is None else replace(plugin, permission=Permission.DENIED, reason=untrusted)


def _untrusted(path: Path) -> str | None:
    """Return why code at a path is not loaded: another user than root owns it, or every user may write it."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        owner = f"user {status.st_uid} owns it and could change it"
        return f"{path}: not loaded: {owner}; make it yours (`chown {os.geteuid()}`)"
    if status.st_mode & stat.S_IWOTH:
        return f"{path}: not loaded: every user may write it; take that away (`chmod o-w`)"
    return None


OWN_RULES = "pertoken.plugins."
"""Where the modules of this program's rules are."""


def load(plugin: Plugin, settings: Settings) -> tuple[Loaded, ...]:
    """Run the module of a plugin, if permitted; return its rules, then one error for each rule with invalid options.

    Raises whatever the module raises, ValueError if it defines no rule.
    """
    if plugin.permission is not Permission.ALLOWED:
        return (Loaded(plugin.name, error=plugin.fault),)
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
            wrong.append(Loaded(declared.rule_id, error=configured))
    switched_off = tuple(rule for rule in rules if rule.rule_id in off)
    return Loaded(plugin.name, tuple(running), disabled=switched_off), *wrong


def faults_of(plugins: Iterable[Plugin]) -> tuple[str, ...]:
    """Return one line for each requested file that cannot run."""
    return tuple(plugin.fault for plugin in plugins if plugin.fault is not None)


def sources_of(plugins: Iterable[Plugin], settings: Settings) -> tuple[PluginSource, ...]:
    """Return the sources of allowed plugins, and of faulty ones, which a run reports."""
    return tuple(
        source_of(plugin, settings) for plugin in plugins if plugin.fault or plugin.permission is Permission.ALLOWED
    )


def source_of(plugin: Plugin, settings: Settings) -> PluginSource:
    """Return the source by which a worker loads a plugin; plugins of one distribution share a worker."""
    group = plugin.distribution or plugin.origin
    # By the module, which is in this package: a distribution may take any name.
    is_own = plugin.entry_point is not None and plugin.entry_point.module.startswith(OWN_RULES)
    return PluginSource(plugin.name, plugin.origin, group, partial(load, plugin, settings), is_own)


def unknown_options(names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Return one line for each table `[rules.ID]` with an id outside `names`."""
    rule_ids = set(names)
    lines = []
    for row in settings.rules:
        if row.rule_id not in rule_ids:
            close = get_close_matches(row.rule_id, rule_ids, n=1)
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
