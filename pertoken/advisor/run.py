"""Running rules: each one alone and timed, on copies of what the run looks at; whatever it does wrong is its result."""

import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, TypeVar

from pertoken.advisor.present import Present
from pertoken.advisor.values import storable
from pertoken.evidence import Evidence, NotMeasured
from pertoken.rule import FleetEvidence, Rule
from pertoken.state.deployment import Deployment
from pertoken.state.service import Service

T = TypeVar("T")

MAX_YIELDS = 1000
"""Values that one rule may yield for one target before it counts as broken."""
MAX_TRACE = 20_000
"""Characters of a traceback that are kept, its last ones."""

SubjectKey = tuple[str, int | str]
"""Kind and id of what evidence is of: `("host", 7)`."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a rule has no result."""

    blocked: NotMeasured | None = None
    """A series it read was not measured."""
    failed: str | None = None
    """Its traceback."""


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """What one rule did for one target."""

    rule: Rule
    asked: Deployment | Service | None
    """The target, as it is in the fleet that was gathered; None for a rule over the fleet."""
    evidence: tuple[tuple[SubjectKey | None, Evidence], ...]
    """What it read; None: of the target itself."""
    outcome: T | Broken


class RuleTimeout(Exception):
    """A rule took longer than it may."""


class Inputs:
    """What rules are handed: copies, so that no rule can change what another one, or pricing, sees."""

    def __init__(self, gathered: Present) -> None:
        context = gathered.context
        self.gathered = gathered
        self._shared = pickle.dumps((gathered.fleet, context.market))
        self._evidence: Mapping[SubjectKey, bytes] = {
            (kind, key): pickle.dumps(evidence)
            for kind, measured in (
                ("deployment", context.deployments),
                ("service", context.services),
                ("device", context.devices),
                ("host", gathered.hosts),
            )
            for key, evidence in measured.items()
        }

    def shared(self) -> Any:
        """Return copies of the fleet and the market."""
        return pickle.loads(self._shared)

    def evidence(self, subject: SubjectKey) -> Evidence:
        """Return a copy of what was measured, nothing of it read."""
        copy: Evidence = pickle.loads(self._evidence[subject]) if subject in self._evidence else Evidence({})
        return copy

    def of_fleet(self) -> FleetEvidence:
        """Return a copy of all that was measured, target by target."""
        return FleetEvidence({subject: self.evidence(subject) for subject in self._evidence})


def run_rule(
    rule: Rule,
    inputs: Inputs,
    timeout_s: float,
    then: Callable[[Deployment | Service | None, tuple[object, ...]], T],
) -> Iterator[Ran[T]]:
    """Run one rule once for each of its targets, and `then(target, yielded values)` under the same guard."""
    fleet, market = inputs.shared()
    there = inputs.gathered.fleet
    targets: tuple[tuple[Any, Any], ...] = ((None, None),)
    if rule.scope == "deployment":
        targets = tuple(zip(there.deployments, fleet.deployments, strict=True))
    elif rule.scope == "service":
        targets = tuple(zip(there.services, fleet.services, strict=True))
    for asked, copy in targets:
        seen: Evidence | FleetEvidence
        match asked:
            case Deployment():
                seen = inputs.evidence(("deployment", asked.deployment_id))
            case Service():
                seen = inputs.evidence(("service", asked.name))
            case _:
                seen = inputs.of_fleet()
        given = {"seen": seen, "now": copy, "service": copy, "fleet": fleet, "market": market}
        outcome = _guarded(rule, given, asked, timeout_s, then)
        yield Ran(rule, asked, _read(seen), outcome)


def _guarded(
    rule: Rule,
    given: Mapping[str, Any],
    asked: Deployment | Service | None,
    timeout_s: float,
    then: Callable[[Deployment | Service | None, tuple[object, ...]], T],
) -> T | Broken:
    try:
        with _deadline(timeout_s, rule.rule_id):
            yielded = _collected(rule(**{name: given[name] for name in rule.needs}))
        return then(asked, yielded)
    except NotMeasured as missing:
        return Broken(blocked=missing)
    except BaseException as error:
        # A plugin may raise anything, SystemExit included; only the person at the keyboard stops the run.
        if isinstance(error, KeyboardInterrupt):
            raise
        return Broken(failed=trace(error))


def trace(error: BaseException) -> str:
    """Return a traceback as text that can be stored."""
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except Exception:  # an error that cannot be shown, such as one whose own methods fail
        text = f"{type(error).__name__} (its traceback cannot be formatted)"
    return storable(text[-MAX_TRACE:])


def _collected(yielded: Any) -> tuple[object, ...]:
    """Return what a rule yields. Raises ValueError for more than may be."""
    values: list[object] = []
    for each in () if yielded is None else yielded:
        values.append(each)
        if len(values) > MAX_YIELDS:
            raise ValueError(f"it made more than {MAX_YIELDS} proposals")
    return tuple(values)


def _read(seen: Evidence | FleetEvidence) -> tuple[tuple[SubjectKey | None, Evidence], ...]:
    if isinstance(seen, FleetEvidence):
        return seen.read
    return ((None, seen),) if seen.read else ()


@contextmanager
def _deadline(seconds: float, rule_id: str) -> Iterator[None]:
    """Interrupt Python code that runs too long. Only the main thread can be; elsewhere there is no deadline."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(number: int, frame: FrameType | None) -> None:
        raise RuleTimeout(f"rule {rule_id} took longer than {seconds:g} s")

    before: Callable[[int, FrameType | None], Any] | int | None = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
