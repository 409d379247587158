"""Check the rules of a file before it runs on a fleet: their results in each regime, and all faults."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pertoken.advisor.changes.title import title
from pertoken.advisor.checks.possible import refuse_impossible, refuse_other_changes
from pertoken.advisor.groups import Chosen
from pertoken.advisor.rules.load import rules_in
from pertoken.advisor.worker.child import Limits
from pertoken.advisor.worker.run import run_job
from pertoken.advisor.worker.wire import storable
from pertoken.errors import BadInput
from pertoken.rule import InvalidEdit, Rule
from pertoken.testing import Proposed, Regime, Result, faults, regimes, run

MAX_LINES = 4
"""Maximum different lines of one rule for a regime."""


LIMITS = Limits(call_s=60.0, plugin_s=90.0)
"""Limits for loading one file and running its rules in every regime, which takes a normal rule a second."""


@dataclass(frozen=True, slots=True)
class Checked:
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
    rules: tuple[Checked, ...] = ()
    failed: str | None = None
    """Why its rules were not checked: a traceback, or how its process ended."""
    output: str = ""
    """Printed output; only the end if it is long."""


def check(path: Path, limits: Limits = LIMITS) -> tuple[CheckedFile, ...]:
    """Check every rule of a file or of a folder's files, each file in a worker with limits.

    Raises BadInput for a path without Python files.
    """
    files = sorted(file for file in path.glob("*.py") if not file.name.startswith("_")) if path.is_dir() else [path]
    if not files or not all(file.is_file() and file.suffix == ".py" for file in files):
        raise BadInput(f"{path}: not a Python file, and not a folder with one")
    return tuple(_checked(file, limits) for file in files)


def _checked(file: Path, limits: Limits) -> CheckedFile:
    run = run_job(partial(_check_file, file), limits)
    if run.failed is not None:
        return CheckedFile(file, failed=run.failed, output=run.output)
    try:
        return CheckedFile(file, tuple(map(_received, run.returned)), output=run.output)
    except (ValueError, LookupError, TypeError, AttributeError):
        return CheckedFile(file, failed="it returned an invalid message", output=run.output)


def _check_file(file: Path) -> list[dict[str, Any]]:
    return [asdict(_check(rule)) for rule in rules_in(file)]


def _received(sent: Any) -> Checked:
    """Return a worker's report on one rule, validated, because the rule may have changed it."""
    got = tuple((storable(name), tuple(map(storable, lines))) for name, lines in sent["got"])
    return Checked(storable(sent["rule_id"]), storable(sent["title"]), got, tuple(map(storable, sent["faults"])))


def _check(rule: Rule) -> Checked:
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
    return Checked(rule.rule_id, rule.title, tuple(got), tuple(dict.fromkeys(rule_faults)))


def _lines(result: Result, regime: Regime) -> tuple[str, ...]:
    proposed = [f"proposes {title(proposal.diff, regime.fleet, Chosen())}" for proposal in result.proposals]
    refused = [f"refuses {refusal.code}: {refusal.reason}" for refusal in result.refusals]
    blocked = [f"blocked: {name} is not measured in this regime" for name in result.blocked]
    lines = list(dict.fromkeys((*proposed, *refused, *blocked))) or ["nothing"]
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _refusal(proposed: Proposed, regime: Regime) -> str | None:
    """Return why a proposal would be refused before pricing; None if it would not."""
    after = regime.fleet.edit(proposed.state)
    try:
        refuse_other_changes(regime.fleet, after)
        refuse_impossible(regime.fleet, after, proposed.diff, regime.market)
    except InvalidEdit as error:
        return str(error)
    return None
