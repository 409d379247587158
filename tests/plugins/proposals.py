"""Running one rule by hand."""

from dataclasses import replace
from typing import Any

from pertoken.evidence import Evidence
from pertoken.rule import Deployment, Fleet, FleetEvidence, Proposal, Rule, Service, Skip
from tests.deployments import MARKET
from tests.savings.fleets import low_batch, replicas


def chat(count: int = 1, **fields: Any) -> Fleet:
    """A fleet whose service `chat` is replicas of a 70B, with any fields set on each of them."""
    fleet = replicas(count)
    (service,) = fleet.services
    changed = replace(service, deployments=tuple(replace(deployment, **fields) for deployment in service.deployments))
    return replace(fleet, services=(changed,))


def yielded(rule: Rule, fleet: Fleet | None = None, seen: Evidence | FleetEvidence | None = None, **more: Any) -> Any:
    """Return what a rule yields for the service `chat`, by default one replica at two requests at a time."""
    fleet = fleet or chat()
    service: Service | None = fleet.services[0] if fleet.services else None
    now: Deployment | None = service.deployments[0] if service else None
    known = {"seen": seen or low_batch(), "now": now, "service": service, "fleet": fleet, "market": MARKET} | more
    return list(rule(**{name: known[name] for name in rule.needs}))


def proposals(*arguments: Any, **more: Any) -> Any:
    """Return the states and refusals that a rule yields, its proposals without risk and effort."""
    return [proposal.state if isinstance(proposal, Proposal) else proposal for proposal in yielded(*arguments, **more)]


def refusal(rule: Rule, *arguments: Any, **more: Any) -> tuple[str, str]:
    """Return the code and reason of a rule that proposes nothing."""
    (only,) = proposals(rule, *arguments, **more)
    assert isinstance(only, Skip)
    return only.code, only.reason
