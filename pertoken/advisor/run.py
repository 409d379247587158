"""Run rules: each one alone and timed, on copies of the run's inputs. Whatever it does wrong becomes its result."""

import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Generic, TypeVar

from pertoken.advisor.present import Present
from pertoken.advisor.values import rebuilt, storable, type_name
from pertoken.evidence import Evidence, NotMeasured
from pertoken.metrics import SERIES
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


SeriesRead = tuple[SubjectKey | None, tuple[str, ...]]
"""A subject (None: the target itself) and the names of its series that a rule read."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a rule has no result."""

    blocked: tuple[str, str] | None = None
    """A series it read that was not measured, and what would measure it."""
    failed: str | None = None
    """Its traceback."""


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """What one rule did for one target."""

    rule: Rule
    asked: Deployment | Service | None
    """The target, as it is in the fleet that was gathered; None for a rule over the fleet."""
    read: tuple[SeriesRead, ...]
    outcome: T | Broken


class RuleTimeout(Exception):
    """A rule took longer than it may."""


class Inputs:
    """What rules are handed: copies, so that no rule can change what another one, or pricing, sees."""

    def __init__(self, gathered: Present) -> None:
        self.gathered = gathered
        self.measured = _measured(gathered)
        """What was gathered, by subject: never handed to a rule."""
        self._shared = pickle.dumps((gathered.fleet, gathered.context.market))
        self._evidence = {subject: pickle.dumps(evidence.fresh()) for subject, evidence in self.measured.items()}

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


def _measured(gathered: Present) -> Mapping[SubjectKey, Evidence]:
    context = gathered.context
    kinds: tuple[tuple[str, Mapping[Any, Evidence]], ...] = (
        ("deployment", context.deployments),
        ("service", context.services),
        ("device", context.devices),
        ("host", gathered.hosts),
    )
    return {(kind, key): evidence for kind, found in kinds for key, evidence in found.items()}


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

        def run(given: Mapping[str, Any] = given, asked: Any = asked) -> T:
            with _deadline(timeout_s, rule.rule_id):
                yielded = _collected(rule(**{name: given[name] for name in rule.needs}))
            return then(asked, yielded)

        outcome = guarded(run)
        read = guarded(partial(_read, seen))
        if isinstance(read, Broken):  # it broke the evidence it was handed
            outcome, read = read, ()
        yield Ran(rule, asked, read, outcome)


def guarded(run: Callable[[], T]) -> T | Broken:
    """Return what `run` returns, or how it broke. Raises KeyboardInterrupt when a person pressed ctrl+c."""
    with _keyboard() as keyboard:
        try:
            return run()
        except NotMeasured as missing:
            return _blocked(missing)
        except BaseException as error:
            # A plugin may raise anything, SystemExit and KeyboardInterrupt included; only a person stops the run.
            if keyboard.pressed:
                raise KeyboardInterrupt from None
            return Broken(failed=trace(error))


def _blocked(missing: NotMeasured) -> Broken:
    """Return which series was not measured; a failure for an error that `Evidence` did not raise."""
    try:
        series, remedy = missing.series, missing.remedy
        if type(series) is str and series in SERIES and type(remedy) is str:
            return Broken(blocked=(series, storable(remedy)))
    except BaseException as error:  # a subclass may do anything when it is read
        return Broken(failed=trace(error))
    return Broken(failed=trace(missing))


def trace(error: BaseException) -> str:
    """Return a traceback as text that can be stored."""
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except BaseException:  # an error that cannot be shown, such as one whose own methods fail
        text = f"{type_name(error)} (its traceback cannot be formatted)"
    return storable(text[-MAX_TRACE:])


def _collected(yielded: Any) -> tuple[object, ...]:
    """Return what a rule yields. Raises ValueError for more than may be."""
    values: list[object] = []
    for each in () if yielded is None else yielded:
        values.append(each)
        if len(values) > MAX_YIELDS:
            raise ValueError(f"it made more than {MAX_YIELDS} proposals")
    return tuple(values)


def _read(seen: Evidence | FleetEvidence) -> tuple[SeriesRead, ...]:
    """Return which series were read. Only names leave the rule's copy of the evidence, which it may have changed."""
    if type(seen) is Evidence:
        return _names(None, seen)
    if type(seen) is not FleetEvidence:
        raise TypeError("the rule replaced the evidence it was handed")
    return tuple(line for subject, evidence in seen.read for line in _names(rebuilt(subject, SubjectKey), evidence))


def _names(subject: SubjectKey | None, evidence: Evidence) -> tuple[SeriesRead, ...]:
    names = tuple(evidence.read)
    if not all(type(name) is str and name in SERIES for name in names):
        raise TypeError("the rule changed the evidence it was handed")
    return ((subject, names),) if names else ()


@dataclass
class _Keyboard:
    """Whether a person pressed ctrl+c: a rule can raise KeyboardInterrupt too."""

    pressed: bool = False


@contextmanager
def _keyboard() -> Iterator[_Keyboard]:
    keyboard = _Keyboard()
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield keyboard  # ctrl+c raises nothing here
        return

    def pressed(number: int, frame: FrameType | None) -> None:
        keyboard.pressed = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, pressed)
    try:
        yield keyboard
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
