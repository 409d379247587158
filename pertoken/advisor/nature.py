"""Target, touched subjects, risk and effort of a change."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import RISKS, Proposal
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs

_RISKS = {
    "replicas": "latency",
    "schedule": "availability",
    "restart": "availability",
    "partitions": "availability",
    "device_ids": "availability",
    "demand.prompt_len": "quality",
    "demand.output_len": "quality",
    "demand.response_cache_share": "quality",
}
"""Risk by changed field. Knobs have their own; a placement risks availability, any other field nothing."""
_HARD = ("model", "engine", "partitions", "commitments", "schedule")
"""Changes that need more than a restart, in addition to placements and demands."""


@dataclass(frozen=True, slots=True)
class Target:
    """Subject of a recommendation; together with the rule id it identifies the row."""

    kind: str
    """`service`, `deployment`, `host` or `fleet`; `load` for a plugin that could not be loaded."""
    key: str
    """Name of a service, id of a deployment or host as digits; empty for the fleet."""
    label: str
    """Name for people."""


FLEET = Target("fleet", "", "the fleet")


def target_of(difference: Diff, before: Fleet) -> Target:
    """Return the target of a proposal over the fleet: its only changed service, else its only released host, else all.

    Merges of different services are separate rows, by the host that each of them frees.
    """
    services, hosts = _services(difference, before), difference.released
    if len(services) == 1:
        return Target("service", services[0], services[0])
    if len(hosts) == 1:
        return Target("host", str(hosts[0].host_id), hosts[0].name)
    return FLEET


def touches(difference: Diff, before: Fleet) -> tuple[str, ...]:
    """Return the subjects that a proposal changes, as `service:NAME` and `host:ID`.

    Savings of two proposals that touch the same subject are not added up.
    """
    named = [f"service:{name}" for name in _services(difference, before)]
    named += [f"host:{host.host_id}" for host in difference.released]
    for change in difference.changes:
        if change.kind == "device":
            named.append(f"host:{before.device(int(change.target)).host_id}")
        elif change.kind == "fleet":
            named.append("commitments")
    return tuple(named)


def risk_of(proposal: Proposal, difference: Diff) -> str:
    """Return the risk that the rule states, else the highest risk of the changes."""
    return proposal.risk or max(_risks(difference), key=RISKS.index, default="none")


def effort_of(proposal: Proposal, difference: Diff) -> str:
    """Return the effort that the rule states, else an effort by whether an engine restarts."""
    if proposal.effort is not None:
        return proposal.effort
    fields = [change.field for change in difference.changes]
    if (
        difference.added
        or difference.removed
        or any(field in _HARD or field.startswith(("placement.", "demand.")) for field in fields)
    ):
        return "high"
    restart = any(field == "restart" or (field in knobs() and knobs()[field].restart) for field in fields)
    return "medium" if restart else "low"


def _risks(difference: Diff) -> Iterator[str]:
    for change in difference.changes:
        if change.field in knobs():
            yield knobs()[change.field].risk
        elif change.field.startswith("placement."):
            yield "availability"
        else:
            yield _RISKS.get(change.field, "none")
    if difference.released or difference.removed:
        yield "availability"
    if difference.added:
        yield "quality"


def _services(difference: Diff, before: Fleet) -> list[str]:
    """Return the services whose deployments or demand change, in the order of the fleet."""
    changed = {int(change.target) for change in difference.changes if change.kind == "deployment"}
    changed |= {deployment.deployment_id for deployment in difference.removed}
    named = {change.target for change in difference.changes if change.kind == "service"}
    named |= {name for deployment in difference.added for name, _ in deployment.serves}
    named |= {name for deployment_id in changed for name in before.listed_by.get(deployment_id, ())}
    return [service.name for service in before.services if service.name in named]
