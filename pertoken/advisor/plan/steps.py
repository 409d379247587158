"""One step of a plan in words and commands, for the fleet that the steps before it left."""

from dataclasses import dataclass, replace

from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.title import title
from pertoken.advisor.groups import Chosen as Decided
from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.search import Chosen
from pertoken.advisor.plan.states import States
from pertoken.advisor.present import Present
from pertoken.savings.estimate import Estimate, whole_hosts
from pertoken.state.diff import diff
from pertoken.state.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Described:
    """What one step does."""

    lever: Lever
    title: str
    replicas: tuple[int, int] | None
    released: tuple[str, ...]
    commands: tuple[str, ...]
    undo: tuple[str, ...]
    assumptions: tuple[str, ...]
    against: tuple[str, ...]


def described(states: States, gathered: Present, before: Chosen, at: int) -> Described:
    """Return what a lever does after the levers of `before`."""
    lever, known = states.levers[at], states.price(before) if before else Estimate()
    found = states.price(before | {at})
    now = _left(states.composed(before), known)
    then = _left(states.composed(before | {at}), known)
    # So many replicas run now: whether the step changes their number is what pricing found.
    named = {each.removeprefix("service:") for each in lever.touches}
    now = replace(now, services=tuple(replace(each, replicas=None) for each in now.services))
    then = replace(then, services=tuple(e if e.name in named else replace(e, replicas=None) for e in then.services))
    resized = [
        (len(each.deployments), len(each.deployments) - gone)
        for each in now.services
        if (gone := _stopped(each.name, found, states.base) - _stopped(each.name, known, states.base))
    ]
    released = tuple(each for each in found.released if each not in known.released)
    decided = Decided(resized[0] if resized else None, released, priced=True)
    difference = diff(now, then)
    there = {each.deployment_id for each in now.deployments if each.device_ids}
    hosts = {key: name for key, name in gathered.addresses.hosts.items() if key in there}
    step = commands(difference, now, replace(gathered.addresses, hosts=hosts), decided)
    return Described(
        lever,
        title(difference, now, decided),
        decided.replicas,
        released,
        step.apply,
        step.undo,
        tuple(each for each in found.assumptions if each not in (*known.assumptions, *whole_hosts(found.released))),
        tuple(each for each in found.against if each not in known.against),
    )


def _stopped(service: str, price: Estimate, base: Fleet) -> int:
    """Return how many replicas of a service pricing stops; which ones may differ from state to state."""
    return sum(service in base.listed_by.get(each, ()) for each in price.stopped)


def _left(fleet: Fleet, price: Estimate) -> Fleet:
    """Return a fleet without the replicas that pricing stopped and the hosts that it released."""
    gone = {each.host_id for each in fleet.hosts if each.name in price.released}
    services = tuple(
        replace(each, deployments=tuple(one for one in each.deployments if one.deployment_id not in price.stopped))
        if any(one.deployment_id in price.stopped for one in each.deployments)
        else each
        for each in fleet.services
    )
    if not gone:
        return replace(fleet, services=services)
    hosts = tuple(each for each in fleet.hosts if each.host_id not in gone)
    return Fleet(services, hosts, tuple(each for each in fleet.devices if each.host_id not in gone), fleet.commitments)
