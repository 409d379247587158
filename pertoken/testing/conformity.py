"""Conformity suite: the contract between rules and advice runs, tested in every regime."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pertoken.evidence import Evidence, NotMeasured
from pertoken.rule import FleetEvidence, Proposal, Rule, Skip, rule, skip
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff, diff
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.state.service import Service
from pertoken.testing.builders import Regime
from pertoken.testing.regimes import regimes

MAX_YIELDS = 1000
"""Maximum values that a rule may yield for one target, as in an advice run."""

Target = Deployment | Service | None
"""Target of a call; None for a rule over the fleet."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """One proposal, and how it differs from the present fleet."""

    target: Target
    state: Deployment | Service | Fleet
    diff: Diff
    """Empty for a proposal that equals the present, which an advice run ignores."""
    risk: str | None = None
    effort: str | None = None
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Results of a rule in a regime, for all of its targets."""

    proposals: tuple[Proposed, ...] = ()
    refusals: tuple[Skip, ...] = ()
    blocked: tuple[str, ...] = ()
    """Unmeasured series that ended a call by being read."""
    read: tuple[str, ...] = ()
    """Series that it read."""
    silent: tuple[Target, ...] = ()
    """Targets without a result that were not blocked."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of its refusals, without duplicates."""
        return tuple(dict.fromkeys(refusal.code for refusal in self.refusals))


def run(rule: Rule, regime: Regime | str, /, **options: Any) -> Result:
    """Run a rule in a regime, or in a typical one by its name, with these options.

    Raises errors of the rule, TypeError for a value that no rule may yield, InvalidEdit for a proposal that no edit
    of the fleet produces, KeyError for an unknown regime, ValueError for an option that is not allowed.
    """
    present = (regimes()[regime] if isinstance(regime, str) else regime).over(rule.window_s)
    configured = rule.configured(options) if options else rule
    proposals: list[Proposed] = []
    refusals: list[Skip] = []
    blocked: dict[str, None] = {}
    read: dict[str, None] = {}
    silent: list[Target] = []
    for target, seen in _targets(rule, present):
        arguments = {"seen": seen, "now": target, "service": target, "fleet": present.fleet, "market": present.market}
        yielded = 0
        try:
            for value in configured(**{name: arguments[name] for name in configured.needs}) or ():
                yielded += 1
                if yielded > MAX_YIELDS:
                    raise ValueError(f"rule {rule.rule_id} yields more than {MAX_YIELDS:,} values for one target")
                if isinstance(value, Skip):
                    refusals.append(skip(value.code, value.reason, value.about))
                else:
                    proposals.append(_proposed(value, target, present.fleet))
        except NotMeasured as missing:
            blocked[missing.series] = None
        else:
            silent += [] if yielded else [target]
        read |= dict.fromkeys(_read(seen))
    return Result(tuple(proposals), tuple(refusals), tuple(blocked), tuple(read), tuple(silent))


def _targets(rule: Rule, regime: Regime) -> Iterator[tuple[Target, Evidence | FleetEvidence]]:
    if rule.scope == "deployment":
        for deployment in regime.fleet.deployments:
            yield deployment, regime.of("deployment", deployment.deployment_id)
    elif rule.scope == "service":
        for service in regime.fleet.services:
            yield service, regime.of("service", service.name)
    else:
        yield None, regime.seen


def _proposed(value: object, target: Target, fleet: Fleet) -> Proposed:
    made = value if isinstance(value, Proposal) else Proposal(value)  # type: ignore[arg-type]  # checked in the next line
    if not isinstance(made.state, Deployment | Service | Fleet):
        kind = type(made.state).__name__
        raise TypeError(f"it yielded a {kind}; a rule yields a Deployment, a Service, a Fleet or skip(code, reason)")
    difference = diff(fleet, fleet.edit(made.state))
    return Proposed(target, made.state, difference, made.risk, made.effort, made.requires, made.excludes)


def _read(seen: Evidence | FleetEvidence) -> tuple[str, ...]:
    if isinstance(seen, Evidence):
        return seen.read
    return tuple(name for _, evidence in seen.read for name in evidence.read)


TIMEOUT_S = 60.0
_CODE = "from pertoken.testing.conformity import main; main()"


def results_elsewhere(candidate: Rule) -> Mapping[str, Result] | None:
    """Return the results of a rule in a new interpreter by regime, without the regimes in which it raises.

    None if it cannot be loaded there, because it is not a global of a module.
    """
    module = sys.modules.get(candidate.function.__module__)
    if module is None or _rule_of(module, candidate.rule_id) is None or getattr(module, "__file__", None) is None:
        return None
    options = None if candidate.options is None else asdict(candidate.options)
    request = json.dumps([module.__name__, module.__file__, candidate.rule_id, options, sys.path])
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE],
            input=request.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=TIMEOUT_S,
            check=True,
        )
        results: Mapping[str, Result] | None = pickle.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, EOFError, pickle.UnpicklingError):
        return None
    return results


def main() -> None:
    """Serve one request of `results_elsewhere` from standard input."""
    name, file, rule_id, options, path = json.loads(sys.stdin.buffer.read())
    answer, sys.stdout = sys.stdout.buffer, sys.stderr  # output of the rule must not mix with the result
    sys.path[:] = path
    candidate = _rule_of(_module(name, file), rule_id)
    if candidate is not None and options is not None:
        candidate = candidate.configured(options)
    results: dict[str, Result] | None = None if candidate is None else {}
    for regime in regimes().values():
        if candidate is not None and results is not None:
            with contextlib.suppress(Exception, SystemExit):  # it also raises in the first process, which reports it
                results[regime.name] = run(candidate, regime)
    answer.write(pickle.dumps(results))


def _rule_of(module: ModuleType, rule_id: str) -> Rule | None:
    return next((var for var in vars(module).values() if type(var) is Rule and var.rule_id == rule_id), None)


def _module(name: str, file: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


_ALWAYS_KNOWN = ("model", "engine")
"""Knobs that every recorded deployment has."""


def assert_conforms(rule: Rule) -> None:
    """Raise AssertionError with every fault of a rule; see `faults`."""
    found_faults = faults(rule)
    if found_faults:
        raise AssertionError(
            f"rule {rule.rule_id} does not conform:\n" + "\n".join(f"- {fault}" for fault in found_faults)
        )


_DIFFERS_ELSEWHERE = (
    "it yields something else in another process: sort sets of texts, whose order differs between processes"
)


def faults(candidate: Rule) -> tuple[str, ...]:
    """Return the faults of a rule, one line each with the regimes that show it; nothing if it conforms.

    In every regime a rule must run without an exception, and yield a proposal or a refusal for each target. It proposes
    nothing that equals the present and leaves its inputs unchanged. It yields the same when it runs again, here and in
    a process with another order of sets. The same holds if any knob or the links of devices are unknown (None), or any
    series that it reads is missing: then it may raise `NotMeasured`. A rule that declares its series reads no other.
    """
    try:
        rule(candidate.rule_id, window=candidate.window, series=candidate.series)(candidate.function)
    except (ValueError, TypeError) as error:
        return (str(error),)
    shown: dict[str, list[str]] = {}
    for regime in regimes().values():
        for fault in dict.fromkeys(_faults_in(candidate, regime)):
            shown.setdefault(fault, []).append(regime.name)
    for name, elsewhere in (results_elsewhere(candidate) or {}).items():
        local = _tried(candidate, regimes()[name])
        if elsewhere is not None and isinstance(local, Result) and local != elsewhere:
            shown.setdefault(_DIFFERS_ELSEWHERE, []).append(name)
    return tuple(f"{fault} (regimes: {', '.join(names)})" for fault, names in shown.items())


def _faults_in(candidate: Rule, regime: Regime) -> Iterator[str]:
    copy = pickle.loads(_pickled()[regime.name])
    first = _tried(candidate, copy, unchanged=regime)
    if isinstance(first, str):
        yield first
        return
    if first.silent:
        yield "it yields nothing: refuse with skip(code, reason)"
    if any(not proposal.diff for proposal in first.proposals):
        yield "it proposes the present state: refuse instead"
    if _tried(candidate, copy, unchanged=regime) != first:
        yield "it yields something else when it is run again: use no clock, no randomness and no state of its own"
    for name in first.read:
        if candidate.series is not None and name not in candidate.series:
            yield f"it reads the series {name} and does not declare it: add it to `series` of its decorator"
        missing = _tried(candidate, regime.without(name))
        if isinstance(missing, str):
            yield f"without the series {name} {missing}"
    for name in knobs():
        if name not in _ALWAYS_KNOWN and _is_known(regime, name):
            unknown = _tried(candidate, _without_knob(regime, name))
            if isinstance(unknown, str):
                yield f"where the knob {name} is unknown (None) {unknown}"
    if any(device.links for device in regime.fleet.devices):
        unknown = _tried(candidate, _without_links(regime))
        if isinstance(unknown, str):
            yield f"where the links of devices are unknown {unknown}"


@cache
def _pickled() -> Mapping[str, bytes]:
    """Return the regimes by name, pickled once: each rule gets copies, which it may change."""
    return {name: pickle.dumps(regime) for name, regime in regimes().items()}


def _tried(candidate: Rule, regime: Regime, unchanged: Regime | None = None) -> Result | str:
    """Return the result of a rule in a regime, or its fault; `unchanged`: the regime as it must be afterwards."""
    try:
        result = run(candidate, regime)
    except (Exception, SystemExit) as error:
        return f"it raises {type(error).__name__}: {error}{_line(error, candidate)}"
    if unchanged is not None and regime != unchanged:
        return "it changes its inputs: use the edits, which return copies"
    return result


def _line(error: BaseException, candidate: Rule) -> str:
    """Return where in the rule's own file an error came from."""
    file = candidate.function.__code__.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(file).name}:{lines[-1]})" if lines else ""


def _without_links(regime: Regime) -> Regime:
    devices = tuple(replace(device, links=()) for device in regime.fleet.devices)
    return replace(regime, fleet=replace(regime.fleet, devices=devices))


def _is_known(regime: Regime, name: str) -> bool:
    deployments = (deployment for service in regime.fleet.services for deployment in service.deployments)
    return any(getattr(deployment, name) is not None for deployment in deployments)


def _without_knob(regime: Regime, name: str) -> Regime:
    unknown: Any = {name: None}
    services = tuple(
        replace(service, deployments=tuple(replace(replica, **unknown) for replica in service.deployments))
        for service in regime.fleet.services
    )
    return replace(regime, fleet=replace(regime.fleet, services=services))
