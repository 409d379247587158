"""What rules there are and what became of each, and the page of one rule as text."""

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from pertoken.advisor.rules.found import Permission
from pertoken.advisor.rules.load import Loaded
from pertoken.errors import BadInput
from pertoken.rule import SECTIONS, Rule
from pertoken.rule_options import options_of

WIDTH = 100
_STATES = {
    Permission.ALLOWED: "loaded",
    Permission.DISABLED: "disabled",
    Permission.DENIED: "denied",
    Permission.MISSING: "broken",
}


_SCOPES = {"deployment": "once per deployment", "service": "once per service", "fleet": "once over the fleet"}


@dataclass(frozen=True, slots=True)
class OptionValue:
    """One option of a rule as text: as it is set, its default, its allowed values and its meaning."""

    name: str
    value: str
    default: str
    domain: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Description:
    """What a rule states of itself, as plain values that can leave the process it was loaded in."""

    rule_id: str
    title: str
    scope: str
    """What it runs once for: each `deployment`, each `service`, or the `fleet`."""
    body: str
    """Of its docstring, between the title and the sections."""
    sections: dict[str, str]
    options: tuple[OptionValue, ...]


def describe(rule: Rule) -> Description:
    """Return what a loaded rule states of itself."""
    body = (inspect.getdoc(rule.function) or "").partition("\n")[2].partition("## ")[0].strip()
    declared = () if rule.options is None else options_of(type(rule.options))
    options = tuple(
        OptionValue(each.name, str(getattr(rule.options, each.name)), str(each.default), each.domain, each.meaning)
        for each in declared
    )
    sections = {name: rule.sections[name] for name in SECTIONS}
    return Description(rule.rule_id, rule.title, rule.scope, body, sections, options)


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule; or one place of rules that were not loaded, so that their ids are not known."""

    id: str
    title: str | None
    """None where it was not loaded."""
    origin: str
    """Name of the distribution, or the file."""
    version: str | None
    """Of the distribution."""
    state: str
    """`loaded`, `disabled`, `denied` or `broken`."""
    reason: str | None
    """Why it does not run, in one line."""


def entries(loaded: Iterable[Loaded]) -> tuple[Entry, ...]:
    """Return one entry a rule, in the order in which they were found."""
    return tuple(entry for each in loaded for entry in _entries(each))


def _entries(each: Loaded) -> Iterator[Entry]:
    origin = each.found.distribution if each.found and each.found.distribution else each.origin
    version = each.found.version if each.found else None
    for rule in each.rules:
        yield Entry(rule.rule_id, rule.title, origin, version, "loaded", None)
    for rule in each.disabled:
        reason = f"switched off; `pertoken rules enable {rule.rule_id}` switches it on"
        yield Entry(rule.rule_id, rule.title, origin, version, "disabled", reason)
    if each.found is not None and each.found.permission is not Permission.ALLOWED:
        yield Entry(each.name, None, origin, version, _STATES[each.found.permission], each.found.reason)
    elif each.error is not None:
        yield Entry(each.name, None, origin, version, "broken", each.error.strip().splitlines()[-1])


def page(name: str, loaded: Iterable[Loaded]) -> str:
    """Return all that is known of a rule as text: what it does, why, when it is wrong, its options.

    Of a rule that was not loaded: why. Raises BadInput for a name that no rule has.
    """
    known = tuple(loaded)
    for each in known:
        for rule in (*each.rules, *each.disabled):
            if rule.rule_id == name:
                return _page(describe(rule), next(entry for entry in _entries(each) if entry.id == name))
    for entry in entries(known):
        if entry.id == name:
            error = next((each.error for each in known if each.name == name and each.error), entry.reason)
            return f"{entry.id}: {entry.state}\n{_origin(entry)}\n\n{error}\n"
    raise unknown(name, (entry.id for entry in entries(known)))


def unknown(name: str, known: Iterable[str]) -> BadInput:
    """Return the error for a name that no rule has, with the nearest one that a rule has."""
    close = get_close_matches(name, tuple(known), n=1)
    hint = f"did you mean {close[0]}?" if close else "`pertoken rules list` lists them"
    return BadInput(f"no rule has the id {name!r} ({hint})")


def _origin(entry: Entry) -> str:
    return f"from {entry.origin} {entry.version or ''}".rstrip()


def _page(rule: Description, entry: Entry) -> str:
    state = entry.state if entry.reason is None else f"{entry.state}: {entry.reason}"
    parts = [f"{rule.rule_id}: {rule.title}", f"{_origin(entry)} · runs {_SCOPES[rule.scope]} · {state}"]
    parts += [rule.body] if rule.body else []
    parts += [f"{name}\n{textwrap.indent(text, '  ')}" for name, text in rule.sections.items()]
    if rule.options:
        options = "\n".join(line for each in rule.options for line in _option(each))
        parts.append(f"Options, in [rules.{rule.rule_id}] of the configuration file\n{options}")
    return "\n\n".join(parts) + "\n"


def _option(each: OptionValue) -> list[str]:
    was = "" if each.value == each.default else f" (default: {each.default})"
    meaning = f"{each.meaning}; {each.domain}" if each.meaning else each.domain
    wrapped = textwrap.wrap(meaning, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return [f"  {each.name} = {each.value}{was}", *wrapped]
