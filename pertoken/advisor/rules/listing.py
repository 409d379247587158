"""List of all rules with their states, and the page of one rule as text."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from pertoken.advisor.rules.discovery import Permission, Plugin, find_rules
from pertoken.advisor.rules.load import source_of
from pertoken.advisor.worker.child import Limits
from pertoken.advisor.worker.run import RULE_ID, OptionValue, PluginRun, RuleInfo, run_plugins
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.printable import paragraphs
from pertoken.units import format_duration

_STATES = {
    Permission.ALLOWED: "loaded",
    Permission.DISABLED: "disabled",
    Permission.DENIED: "denied",
    Permission.MISSING: "broken",
}
_SCOPES = {"deployment": "once per deployment", "service": "once per service", "fleet": "once over the fleet"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule, or one plugin that was not loaded, so that the ids of its rules are not known."""

    id: str
    title: str | None
    """None if it was not loaded."""
    origin: str
    """Name of the distribution, or path of the file."""
    version: str | None
    """Version of the distribution."""
    state: str
    """`loaded`, `disabled`, `denied` or `broken`."""
    reason: str | None
    """Why it does not run, in one line."""
    confinement: str | None
    """`confined`, or `not confined` with the reasons; None if it may not be loaded."""
    window_s: int | None = None
    """Length of its window, seconds; None if it was not loaded."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A plugin, and the result of loading it in a worker."""

    plugin: Plugin
    run: PluginRun | None
    """None if it may not be loaded."""
    window_s: int
    """Window of rules without a window of their own, seconds."""


def listed(settings: Settings, limits: Limits | None = None) -> tuple[Listed, ...]:
    """Find every plugin, and load those that may be loaded, in workers. No plugin code runs in this process.

    Raises BadInput for a list of disabled rules that cannot be read.
    """
    places = find_rules(settings)
    allowed = [place for place in places if place.permission is Permission.ALLOWED]
    sources = [source_of(plugin, settings) for plugin in allowed]
    runs = iter(run_plugins(sources, None, limits or Limits.of_call(settings.advisor_rule_timeout)))
    window_s = int(settings.advisor_since)
    return tuple(
        Listed(place, next(runs) if place.permission is Permission.ALLOWED else None, window_s) for place in places
    )


def entries(known: Iterable[Listed]) -> tuple[Entry, ...]:
    """Return one entry per rule, in order of discovery."""
    return tuple(entry for item in known for entry in _entries(item))


def _entries(item: Listed) -> Iterator[Entry]:
    plugin, run = item.plugin, item.run
    origin, version = plugin.distribution or plugin.origin, plugin.version
    if run is None:
        yield Entry(plugin.name, None, origin, version, _STATES[plugin.permission], plugin.reason, None)
        return
    confinement = run.confinement.label
    for one in run.rules:
        window_s = one.rule.window_s or item.window_s
        yield Entry(one.rule.rule_id, one.rule.title, origin, version, "loaded", None, confinement, window_s)
    for rule in run.disabled:
        reason = f"switched off; `pertoken rules enable {rule.rule_id}` switches it on"
        window_s = rule.window_s or item.window_s
        yield Entry(rule.rule_id, rule.title, origin, version, "disabled", reason, confinement, window_s)
    for name, error in run.errors:
        reason = (error.strip().splitlines() or ["an error without a text"])[-1]
        yield Entry(name, None, origin, version, "broken", reason, confinement)


def page(name: str, known: Iterable[Listed]) -> str:
    """Return the page of a rule as text: its title, sections and options, or why it was not loaded.

    Each paragraph of its documentation is one line. Raises BadInput for an unknown name.
    """
    names: list[str] = []
    for item in known:
        for entry in _entries(item):
            if entry.id == name:
                return _page(item, entry)
            names.append(entry.id)
    raise unknown(name, names)


def _page(item: Listed, entry: Entry) -> str:
    rules = () if item.run is None else item.run.known
    rule = next((one for one in rules if one.rule_id == entry.id and entry.state != "broken"), None)
    if rule is not None:
        return _page_of(rule, entry)
    errors = () if item.run is None else item.run.errors
    error = next((text for name, text in errors if name == entry.id), entry.reason)
    output = "" if item.run is None else item.run.output.strip()
    printed = f"\nIt printed\n{textwrap.indent(output, '  ')}\n" if output else ""
    return f"{entry.id}: {entry.state}\n{_origin(entry)}\n\n{error}\n{printed}"


def refuse_impossible(name: str, places: Iterable[Plugin]) -> None:
    """Raise BadInput for a name that is neither a valid rule id nor a plugin's name, without loading any rule."""
    known = [place.name for place in places]
    if name not in known and not RULE_ID.fullmatch(name):
        raise unknown(name, known)


def unknown(name: str, known: Iterable[str]) -> BadInput:
    """Return the error for an unknown rule id, with the closest known one."""
    close = get_close_matches(name, tuple(known), n=1)
    hint = f"did you mean {close[0]}?" if close else "`pertoken rules list` lists them"
    return BadInput(f"no rule has the id {name!r} ({hint})")


def _origin(entry: Entry) -> str:
    return f"from {entry.origin} {entry.version or ''}".rstrip()


def _page_of(rule: RuleInfo, entry: Entry) -> str:
    state = entry.state if entry.reason is None else f"{entry.state}: {entry.reason}"
    window = f"over the last {format_duration(entry.window_s)}" if entry.window_s else ""
    runs = f"runs {_SCOPES[rule.scope]} {window}".rstrip()
    parts = [f"{rule.rule_id}: {rule.title}", f"{_origin(entry)} · {runs} · {state}"]
    parts += [entry.confinement] if entry.confinement else []
    parts += [paragraphs(rule.body)] if rule.body else []
    parts += [f"{name}\n{textwrap.indent(paragraphs(text), '  ')}" for name, text in rule.sections.items()]
    if rule.options:
        options = "\n".join(line for option in rule.options for line in _option(option))
        parts.append(f"Options, in [rules.{rule.rule_id}] of the configuration file\n{options}")
    return "\n\n".join(parts) + "\n"


def _option(value: OptionValue) -> list[str]:
    was = "" if value.value == value.default else f" (default: {value.default})"
    meaning = f"{value.meaning}; {value.domain}" if value.meaning else value.domain
    return [f"  {value.name} = {value.value}{was}", f"    {meaning}"]
