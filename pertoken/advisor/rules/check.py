"""Checking the rules of a file before it is run on a fleet: what each typical situation gets, and every fault."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pertoken.advisor.candidate import candidate
from pertoken.advisor.groups import Chosen
from pertoken.advisor.rules.load import rules_in
from pertoken.advisor.run import Broken, guarded
from pertoken.advisor.title import title
from pertoken.errors import BadInput
from pertoken.rule import Rule
from pertoken.testing import Regime, faults, regimes, run
from pertoken.testing.running import Proposed

MAX_LINES = 4
"""Different lines of one rule that are shown for a regime."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one rule."""

    rule: Rule
    got: tuple[tuple[str, tuple[str, ...]], ...]
    """Name of each regime, and what the rule yields there, a line each."""
    faults: tuple[str, ...]
    """Nothing for a rule that conforms."""


def check(path: Path) -> tuple[Checked, ...]:
    """Check every rule of a file, or of the files of a folder.

    Raises BadInput for a path without rules, with the error of a file that could not be loaded.
    """
    files = sorted(each for each in path.glob("*.py") if not each.name.startswith("_")) if path.is_dir() else [path]
    if not files or not all(each.is_file() and each.suffix == ".py" for each in files):
        raise BadInput(f"{path}: no Python file, and no folder with one")
    checked = []
    for file in files:
        rules = guarded(partial(rules_in, file))
        if isinstance(rules, Broken):
            raise BadInput(f"{file}: {rules.failed or ': '.join(rules.blocked or ())}")
        checked += [_check(each) for each in rules]
    return tuple(checked)


def _check(rule: Rule) -> Checked:
    found = list(faults(rule))
    got: list[tuple[str, tuple[str, ...]]] = []
    for there in regimes().values():
        lines = guarded(partial(_lines, rule, there))
        if isinstance(lines, Broken):
            last = (lines.failed or "blocked").strip().splitlines()[-1]
            got.append((there.name, (f"fails: {last}",)))
            continue
        got.append((there.name, lines))
        found += [f"{line} (regime: {there.name})" for line in _impossible(rule, there)]
    return Checked(rule, tuple(got), tuple(dict.fromkeys(found)))


def _lines(rule: Rule, there: Regime) -> tuple[str, ...]:
    result = run(rule, there)
    proposed = [f"proposes {title(each.diff, there.fleet, Chosen())}" for each in result.proposals]
    refused = [f"refuses {each.code}: {each.reason}" for each in result.refusals]
    blocked = [f"blocked: {name} is not measured there" for name in result.blocked]
    lines = list(dict.fromkeys((*proposed, *refused, *blocked))) or ["nothing"]
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _impossible(rule: Rule, there: Regime) -> tuple[str, ...]:
    """Return why proposals are refused before they are priced."""
    lines = []
    for each in run(rule, there).proposals:
        refusal = guarded(partial(_validated, each, there))
        if isinstance(refusal, Broken):
            lines.append(f"it proposes what cannot be: {(refusal.failed or '').strip().splitlines()[-1]}")
    return tuple(lines)


def _validated(proposed: Proposed, there: Regime) -> None:
    candidate(there.fleet, proposed.state, proposed.target, there.market)
