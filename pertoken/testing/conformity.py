"""Conformity suite: what an advice run expects of every rule, tested in every regime."""

import pickle
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pertoken.rule import Rule, rule
from pertoken.state.knobs import knobs
from pertoken.testing.elsewhere import results_elsewhere
from pertoken.testing.regime import Regime
from pertoken.testing.regimes import regimes
from pertoken.testing.running import Result, run

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
    """Return what is wrong with a rule, a line for each fault with the regimes that show it; nothing if it conforms.

    In every regime a rule must run without an exception, yield a proposal or a refusal for each target, propose nothing
    that equals the present, leave its inputs unchanged, and yield the same when it runs again, here and in a process
    with another order of sets. The same holds if any knob or the links of devices are unknown (None), and if any series
    that it reads is missing: then it may raise `NotMeasured`. A rule that declares its series reads no other.
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
    """Return the result of a rule in a regime, or its fault; `unchanged`: what the regime must equal afterwards."""
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
    """Return whether any deployment has a value of a knob."""
    deployments = (deployment for service in regime.fleet.services for deployment in service.deployments)
    return any(getattr(deployment, name) is not None for deployment in deployments)


def _without_knob(regime: Regime, name: str) -> Regime:
    unknown: Any = {name: None}
    services = tuple(
        replace(service, deployments=tuple(replace(one, **unknown) for one in service.deployments))
        for service in regime.fleet.services
    )
    return replace(regime, fleet=replace(regime.fleet, services=services))
