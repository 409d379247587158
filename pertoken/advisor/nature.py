"""What kind of change a difference is: its target, what it touches, its risk and its effort."""

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
"""Risk of changed fields. A knob has its own; that of a placement is availability, and of any other field none."""
_HARD = ("model", "engine", "partitions", "commitments", "schedule")
"""Changes that take more than a restart, beside placements and demands."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a rule's row is about; together with the rule it is the row's identity."""

    kind: str
    """`service`, `deployment`, `host` or `fleet`; `load` for a plugin that could not be loaded."""
    key: str
    """Name of a service, id of a deployment or host as digits; empty for the fleet."""
    label: str
    """What people call it."""


FLEET = Target("fleet", "", "the fleet")


def target_of(difference: Diff, before: Fleet) -> Target:
    """Return the target of a proposal made over the fleet: the one service it changes, else the one host that it
    releases, else all. Merges of different services are rows of their own by the host that each of them empties."""
    services, hosts = _services(difference, before), difference.released
    if len(services) == 1:
        return Target("service", services[0], services[0])
    if len(hosts) == 1:
        return Target("host", str(hosts[0].host_id), hosts[0].name)
    return FLEET


def touches(difference: Diff, before: Fleet) -> tuple[str, ...]:
    """Return what a proposal changes, as `service:NAME` and `host:ID`: two that touch the same are not added up."""
    named = [f"service:{name}" for name in _services(difference, before)]
    named += [f"host:{host.host_id}" for host in difference.released]
    for change in difference.changes:
        if change.kind == "device":
            named.append(f"host:{before.device(int(change.target)).host_id}")
        elif change.kind == "fleet":
            named.append("commitments")
    return tuple(named)


def risk_of(proposal: Proposal, difference: Diff) -> str:
    """Return what a proposal can harm: as its rule states, else the worst of its changes."""
    return proposal.risk or max(_risks(difference), key=RISKS.index, default="none")


def effort_of(proposal: Proposal, difference: Diff) -> str:
    """Return how much work a proposal is: as its rule states, else by whether an engine restarts."""
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
