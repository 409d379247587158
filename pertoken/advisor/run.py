"""Running rules over what was gathered: each one alone, timed, and whatever it does wrong is its own result."""

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pertoken.advisor.gather import Gathered
from pertoken.catalog.market import Market
from pertoken.deployment import Deployment, Fleet
from pertoken.evidence import Evidence, NotMeasured
from pertoken.rule import Rule, Skip

MOST_PROPOSALS = 1000
"""Proposals one rule may make on one deployment before it is taken to be broken."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one rule did with one target. Exactly one of proposals, refusals, blocked and failed is not empty."""

    rule: Rule
    now: Deployment | None
    """None for a rule about the whole fleet."""
    evidence: tuple[tuple[int | None, Evidence], ...]
    """What it read, by device id for devices of the fleet (None: of the deployment)."""
    proposals: tuple[Deployment | Fleet, ...] = ()
    refusals: tuple[str, ...] = ()
    blocked: NotMeasured | None = None
    failed: str | None = None
    took_s: float = 0.0


class RuleTimeout(Exception):
    """A rule took longer than it may."""


def run_rule(rule: Rule, gathered: Gathered, market: Market, timeout_s: float) -> Iterator[Ran]:
    """Run one rule: once per deployment if it asks for one, else once for the fleet."""
    targets: tuple[Deployment | None, ...] = gathered.fleet.deployments if rule.per_deployment else (None,)
    for now in targets:
        yield _run(rule, now, gathered, market, timeout_s)


def _run(rule: Rule, now: Deployment | None, gathered: Gathered, market: Market, timeout_s: float) -> Ran:
    fleet = _fresh(gathered.fleet)
    seen = gathered.seen[now.deployment_id].fresh() if now else Evidence({})
    given: dict[str, Any] = {"seen": seen, "now": now, "market": market, "fleet": fleet}
    started = time.monotonic()
    result: dict[str, Any] = {}
    try:
        with _deadline(timeout_s, rule.rule_id):
            result = _sorted(rule, rule(**{name: given[name] for name in rule.needs}), now, fleet)
    except NotMeasured as missing:
        result = {"blocked": missing}
    except BaseException as error:
        # A plugin may raise anything, SystemExit included; only the person at the keyboard stops the run.
        if isinstance(error, KeyboardInterrupt):
            raise
        result = {"failed": "".join(traceback.format_exception(error)).strip()}
    read = [(None, seen), *((device.device_id, device.seen) for device in fleet.devices)]
    return Ran(
        rule,
        now,
        tuple((owner, evidence) for owner, evidence in read if evidence.read),
        took_s=time.monotonic() - started,
        **result,
    )


def _fresh(fleet: Fleet) -> Fleet:
    from dataclasses import replace

    return Fleet(fleet.deployments, tuple(replace(each, seen=each.seen.fresh()) for each in fleet.devices))


def _sorted(rule: Rule, yielded: Any, now: Deployment | None, fleet: Fleet) -> dict[str, Any]:
    """Check what a rule yielded. Raises TypeError or ValueError for what the contract does not allow."""
    proposals: list[Deployment | Fleet] = []
    refusals: list[str] = []
    if yielded is None:
        yielded = ()
    for each in yielded:
        if isinstance(each, Skip):
            refusals.append(each.reason)
        elif isinstance(each, Deployment) and now is not None:
            if each.deployment_id != now.deployment_id:
                raise ValueError("it proposed another deployment than it was asked about; use now.but(...)")
            if each == now:
                raise ValueError("it proposed the present")
            proposals.append(each)
        elif isinstance(each, Fleet):
            if each == fleet:
                raise ValueError("it proposed the present")
            proposals.append(each)
        else:
            raise TypeError(f"it yielded {each!r}; a rule yields a Deployment, a Fleet or skip(reason)")
        if len(proposals) > MOST_PROPOSALS:
            raise ValueError(f"it made more than {MOST_PROPOSALS} proposals")
    if proposals:
        return {"proposals": tuple(proposals)}
    return {"refusals": tuple(refusals) or ("it had nothing to propose, and gave no reason",)}


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
