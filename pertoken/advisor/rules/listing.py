"""Commands on rules: list them with their states, explain one, check the rules of a file, and scaffold a new one."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from pathlib import Path

from pertoken.advisor.changes.title import PricingChoices, title
from pertoken.advisor.rules.discovery import Permission, Plugin, find_rules, rules_in, source_of
from pertoken.advisor.worker.child import RuleLimits
from pertoken.advisor.worker.run import RULE_ID, OptionValue, PluginRun, RuleInfo, run_job, run_plugins
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.printable import paragraphs
from pertoken.rule import InvalidEdit, Rule
from pertoken.state.validation import validate
from pertoken.state.wire import storable
from pertoken.testing import Proposed, Regime, Result, faults, regimes, run
from pertoken.units import format_duration

_STATES = {
    Permission.ALLOWED: "loaded",
    Permission.DISABLED: "disabled",
    Permission.DENIED: "denied",
    Permission.MISSING: "broken",
}
_SCOPES = {"deployment": "once per deployment", "service": "once per service", "fleet": "once over the fleet"}


@dataclass(frozen=True, slots=True)
class RuleEntry:
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


def listed(settings: Settings, limits: RuleLimits | None = None) -> tuple[Listed, ...]:
    """Find every plugin, and load those that may be loaded, in workers. No plugin code runs in this process.

    Raises BadInput for a list of disabled rules that cannot be read.
    """
    plugins = find_rules(settings)
    allowed = [candidate for candidate in plugins if candidate.permission is Permission.ALLOWED]
    sources = [source_of(plugin, settings) for plugin in allowed]
    runs = iter(run_plugins(sources, None, limits or RuleLimits.of_call(settings.advisor_rule_timeout)))
    window_s = int(settings.advisor_since)
    return tuple(
        Listed(candidate, next(runs) if candidate.permission is Permission.ALLOWED else None, window_s)
        for candidate in plugins
    )


def entries(plugins: Iterable[Listed]) -> tuple[RuleEntry, ...]:
    """Return one entry per rule, in order of discovery."""
    return tuple(entry for item in plugins for entry in _entries(item))


def _entries(item: Listed) -> Iterator[RuleEntry]:
    plugin, run = item.plugin, item.run
    origin, version = plugin.distribution or plugin.origin, plugin.version
    if run is None:
        yield RuleEntry(plugin.name, None, origin, version, _STATES[plugin.permission], plugin.reason, None)
        return
    confinement = run.confinement.label
    for loaded in run.rules:
        window_s = loaded.rule.window_s or item.window_s
        yield RuleEntry(loaded.rule.rule_id, loaded.rule.title, origin, version, "loaded", None, confinement, window_s)
    for rule in run.disabled:
        reason = f"switched off; `pertoken rules enable {rule.rule_id}` switches it on"
        window_s = rule.window_s or item.window_s
        yield RuleEntry(rule.rule_id, rule.title, origin, version, "disabled", reason, confinement, window_s)
    for name, error in run.errors:
        reason = (error.strip().splitlines() or ["an error without a text"])[-1]
        yield RuleEntry(name, None, origin, version, "broken", reason, confinement)


def page(name: str, plugins: Iterable[Listed]) -> str:
    """Return the page of a rule as text: its title, sections and options, or why it was not loaded.

    Each paragraph of its documentation is one line. Raises BadInput for an unknown name.
    """
    names: list[str] = []
    for item in plugins:
        for entry in _entries(item):
            if entry.id == name:
                return _page(item, entry)
            names.append(entry.id)
    raise unknown(name, names)


def _page(item: Listed, entry: RuleEntry) -> str:
    rules = () if item.run is None else item.run.known
    rule = next((loaded for loaded in rules if loaded.rule_id == entry.id and entry.state != "broken"), None)
    if rule is not None:
        return _page_of(rule, entry)
    errors = () if item.run is None else item.run.errors
    error = next((text for name, text in errors if name == entry.id), entry.reason)
    output = "" if item.run is None else item.run.output.strip()
    printed = f"\nIt printed\n{textwrap.indent(output, '  ')}\n" if output else ""
    return f"{entry.id}: {entry.state}\n{_origin(entry)}\n\n{error}\n{printed}"


def refuse_unknown_rule(name: str, plugins: Iterable[Plugin]) -> None:
    """Raise BadInput for a name that is neither a valid rule id nor a plugin's name, without loading any rule."""
    names = [plugin.name for plugin in plugins]
    if name not in names and not RULE_ID.fullmatch(name):
        raise unknown(name, names)


def unknown(name: str, known_ids: Iterable[str]) -> BadInput:
    """Return the error for an unknown rule id, with the closest known one."""
    close = get_close_matches(name, tuple(known_ids), n=1)
    hint = f"did you mean {close[0]}?" if close else "`pertoken rules list` lists them"
    return BadInput(f"no rule has the id {name!r} ({hint})")


def _origin(entry: RuleEntry) -> str:
    return f"from {entry.origin} {entry.version or ''}".rstrip()


def _page_of(rule: RuleInfo, entry: RuleEntry) -> str:
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


MAX_LINES = 4
"""Maximum different lines of one rule for a regime."""


LIMITS = RuleLimits(call_s=60.0, plugin_s=90.0)
"""Limits for loading one file and running its rules in every regime, which takes a normal rule a second."""


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """Result of one rule."""

    rule_id: str
    title: str
    got: tuple[tuple[str, tuple[str, ...]], ...]
    """Regimes by name, each with one line per proposal and refusal."""
    faults: tuple[str, ...]
    """Empty for a rule that conforms."""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """Result of the rules of one file."""

    file: Path
    rules: tuple[RuleCheck, ...] = ()
    failed: str | None = None
    """Why its rules were not checked: a traceback, or how its process ended."""
    output: str = ""
    """Printed output; only the end if it is long."""


def check(path: Path, limits: RuleLimits = LIMITS) -> tuple[CheckedFile, ...]:
    """Check every rule of a file or of a folder's files, each file in a worker with limits.

    Raises BadInput for a path without Python files.
    """
    files = sorted(file for file in path.glob("*.py") if not file.name.startswith("_")) if path.is_dir() else [path]
    if not files or not all(file.is_file() and file.suffix == ".py" for file in files):
        raise BadInput(f"{path}: not a Python file, and not a folder with one")
    return tuple(_checked(file, limits) for file in files)


def _checked(file: Path, limits: RuleLimits) -> CheckedFile:
    run = run_job(partial(_check_file, file), limits)
    if run.failed is not None:
        return CheckedFile(file, failed=run.failed, output=run.output)
    try:
        return CheckedFile(file, _received(run.returned), output=run.output)
    except (ValueError, LookupError, TypeError, AttributeError):
        return CheckedFile(file, failed="it returned an invalid message", output=run.output)


def _check_file(file: Path) -> list[dict[str, object]]:
    return [asdict(_check(rule)) for rule in rules_in(file)]


def _received(sent: object) -> tuple[RuleCheck, ...]:
    """Return a worker's reports on rules, validated, because a rule may have changed them."""
    if not isinstance(sent, list):
        raise ValueError("no list of rules")
    return tuple(
        RuleCheck(
            storable(rule["rule_id"]),
            storable(rule["title"]),
            tuple((storable(name), tuple(map(storable, lines))) for name, lines in rule["got"]),
            tuple(map(storable, rule["faults"])),
        )
        for rule in sent
    )


def _check(rule: Rule) -> RuleCheck:
    rule_faults = list(faults(rule))
    got: list[tuple[str, tuple[str, ...]]] = []
    for regime in regimes().values():
        try:
            result = run(rule, regime)
        except (Exception, SystemExit) as error:
            got.append((regime.name, (f"fails: {type(error).__name__}: {error}",)))
            continue
        got.append((regime.name, _lines(result, regime)))
        reasons = [reason for proposal in result.proposals if (reason := _refusal(proposal, regime)) is not None]
        rule_faults += [f"it makes an impossible proposal: {reason} (regime: {regime.name})" for reason in reasons]
    return RuleCheck(rule.rule_id, rule.title, tuple(got), tuple(dict.fromkeys(rule_faults)))


def _lines(result: Result, regime: Regime) -> tuple[str, ...]:
    proposed = [f"proposes {title(proposal.diff, regime.fleet, PricingChoices())}" for proposal in result.proposals]
    refused = [f"refuses {refusal.code}: {refusal.reason}" for refusal in result.refusals]
    blocked = [f"blocked: {name} is not measured in this regime" for name in result.blocked]
    lines = list(dict.fromkeys((*proposed, *refused, *blocked))) or ["nothing"]
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _refusal(proposed: Proposed, regime: Regime) -> str | None:
    """Return why a proposal would be refused before pricing; None if it would not."""
    after = regime.fleet.edit(proposed.state)
    try:
        models = {name: regime.market.model(name) for name in proposed.diff.models}
        validate(regime.fleet, after, proposed.diff, models)
    except InvalidEdit as error:
        return str(error)
    return None


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_NAME = 60


def new_rule(name: str, folder: Path, *, package: bool = False) -> tuple[Path, ...]:
    """Write a rule named `name` into a folder, and return its files; the first path of a package is its folder.

    Raises BadInput for a name that is not a rule id or does not begin with a letter, or for an existing file. Raises
    OSError for a file that cannot be written.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise BadInput(f"{name!r}: use lower-case words joined by hyphens, a letter first, such as lower-clocks")
    identifier = name.replace("-", "_")
    function = f"{identifier}_" if keyword.iskeyword(identifier) else identifier
    module = f"pertoken_rule_{identifier}" if package else identifier
    words = {"@NAME@": name, "@FUNCTION@": function, "@MODULE@": module}
    if not package:
        file = folder / f"{module}.py"
        _write({file: _filled("rule.py.txt", words)})
        return (file,)
    home = folder / f"pertoken-rule-{name}"
    texts = {
        home / f"{module}.py": _filled("rule.py.txt", words),
        home / "pyproject.toml": _filled("pyproject.toml.txt", words),
        home / "tests" / f"test_{identifier}.py": _filled("test.py.txt", words),
    }
    if home.exists():
        raise BadInput(f"{home} exists already: choose another name, or move it away")
    _write(texts)
    return (home, *texts)


def _filled(template: str, words: dict[str, str]) -> str:
    text = files("pertoken.advisor.rules").joinpath("templates", template).read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _write(texts: dict[Path, str]) -> None:
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            raise BadInput(f"{file} exists already: choose another name, or move it away") from None
