"""Checking the rules of a file before it is run on a fleet: what each typical situation gets, and every fault."""

import traceback
from dataclasses import dataclass
from pathlib import Path

from pertoken.advisor.groups import Chosen
from pertoken.advisor.possible import refuse_impossible, refuse_other_changes
from pertoken.advisor.rules.load import rules_in
from pertoken.advisor.title import title
from pertoken.errors import BadInput
from pertoken.rule import InvalidEdit, Rule
from pertoken.testing import Proposed, Regime, Result, faults, regimes, run

MAX_LINES = 4
"""Different lines of one rule that are shown for a regime."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one rule."""

    rule: Rule
    got: tuple[tuple[str, tuple[str, ...]], ...]
    """Name of each regime, and what the rule yields in it, a line each."""
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
        try:
            rules = rules_in(file)
        except (Exception, SystemExit):
            raise BadInput(f"{file}: {traceback.format_exc()}") from None
        checked += [_check(each) for each in rules]
    return tuple(checked)


def _check(rule: Rule) -> Checked:
    found = list(faults(rule))
    got: list[tuple[str, tuple[str, ...]]] = []
    for regime in regimes().values():
        try:
            result = run(rule, regime)
        except (Exception, SystemExit) as error:
            got.append((regime.name, (f"fails: {type(error).__name__}: {error}",)))
            continue
        got.append((regime.name, _lines(result, regime)))
        reasons = [reason for each in result.proposals if (reason := _refusal(each, regime)) is not None]
        found += [f"it proposes what cannot be: {reason} (regime: {regime.name})" for reason in reasons]
    return Checked(rule, tuple(got), tuple(dict.fromkeys(found)))


def _lines(result: Result, regime: Regime) -> tuple[str, ...]:
    proposed = [f"proposes {title(each.diff, regime.fleet, Chosen())}" for each in result.proposals]
    refused = [f"refuses {each.code}: {each.reason}" for each in result.refusals]
    blocked = [f"blocked: {name} is not measured there" for name in result.blocked]
    lines = list(dict.fromkeys((*proposed, *refused, *blocked))) or ["nothing"]
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _refusal(proposed: Proposed, regime: Regime) -> str | None:
    """Return why a proposal would be refused before it is priced."""
    after = regime.fleet.edit(proposed.state)
    try:
        refuse_other_changes(regime.fleet, after)
        refuse_impossible(regime.fleet, after, proposed.diff, regime.market)
    except InvalidEdit as error:
        return str(error)
    return None
