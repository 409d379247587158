"""Running a rule over a regime as an advice run would: once for each of its targets, and what it yields as values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pertoken.evidence import Evidence, NotMeasured
from pertoken.rule import FleetEvidence, Proposal, Rule, Skip, skip
from pertoken.state.deployment import Deployment
from pertoken.state.diff import Diff, diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.testing.regime import Regime
from pertoken.testing.regimes import regimes

MAX_YIELDS = 1000
"""Values that a rule may yield for one target; an advice run takes no more either."""

Target = Deployment | Service | None
"""What a rule was run for; None for a rule over the fleet."""


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
    """What a rule yielded over a regime, for all of its targets."""

    proposals: tuple[Proposed, ...] = ()
    refusals: tuple[Skip, ...] = ()
    blocked: tuple[str, ...] = ()
    """Series that it read, that were not measured, and without which it did not go on."""
    read: tuple[str, ...] = ()
    """Series that it read."""
    silent: tuple[Target, ...] = ()
    """Targets for which it yielded nothing and was not blocked."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of its refusals, each once."""
        return tuple(dict.fromkeys(refusal.code for refusal in self.refusals))


def run(rule: Rule, regime: Regime | str, /, **options: Any) -> Result:
    """Run a rule over a regime, or a typical one by its name, with these of its options.

    Raises what the rule raises, TypeError for a value that no rule may yield, InvalidEdit for a proposal that no edit
    of the fleet leads to, KeyError for an unknown regime, ValueError for an option that is not allowed.
    """
    present = (regimes()[regime] if isinstance(regime, str) else regime).over(rule.window_s)
    configured = rule.configured(options) if options else rule
    proposals: list[Proposed] = []
    refusals: list[Skip] = []
    blocked: dict[str, None] = {}
    read: dict[str, None] = {}
    silent: list[Target] = []
    for target, seen in _targets(rule, present):
        known = {"seen": seen, "now": target, "service": target, "fleet": present.fleet, "market": present.market}
        yielded = 0
        try:
            for value in configured(**{name: known[name] for name in configured.needs}) or ():
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
