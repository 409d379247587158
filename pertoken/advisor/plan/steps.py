"""Title, commands and assumptions of one step of a plan, for the fleet after the earlier steps."""

from dataclasses import dataclass, replace

from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.title import title
from pertoken.advisor.groups import Chosen as Decided
from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.search import Chosen
from pertoken.advisor.plan.states import States
from pertoken.advisor.present import Present
from pertoken.forecast.tiers import split_tier
from pertoken.savings.estimate import Estimate, whole_hosts
from pertoken.state.diff import diff
from pertoken.state.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Described:
    """Description of one step."""

    lever: Lever
    title: str
    replicas: tuple[int, int] | None
    released: tuple[str, ...]
    commands: tuple[str, ...]
    undo: tuple[str, ...]
    assumptions: tuple[str, ...]
    against: tuple[str, ...]


def described(states: States, gathered: Present, before: Chosen, at: int) -> Described:
    """Return the description of a lever applied after the levers of `before`."""
    lever, known = states.levers[at], states.price(before) if before else Estimate()
    price = states.price(before | {at})
    now = _left(states.composed(before), known)
    then = _left(states.composed(before | {at}), known)
    # Start from the running replicas: pricing decided whether the step changes their number.
    named = {touched.removeprefix("service:") for touched in lever.touches}
    now = replace(now, services=tuple(replace(service, replicas=None) for service in now.services))
    then = replace(then, services=tuple(e if e.name in named else replace(e, replicas=None) for e in then.services))
    resized = {
        service.name: (len(service.deployments), len(service.deployments) - gone)
        for service in now.services
        if (gone := _stopped(service.name, price, states.base) - _stopped(service.name, known, states.base))
    }
    released = tuple(host for host in price.released if host not in known.released)
    placed = list(price.ordered)
    for instances in known.ordered:
        if instances in placed:
            placed.remove(instances)
    decided = Decided(resized, released, priced=True, placed=tuple(placed))
    difference = diff(now, then)
    running = {deployment.deployment_id for deployment in now.deployments if deployment.device_ids}
    hosts = {key: name for key, name in gathered.addresses.hosts.items() if key in running}
    step = commands(difference, now, replace(gathered.addresses, hosts=hosts), decided)
    return Described(
        lever,
        title(difference, now, decided),
        next(iter(resized.values()), None),
        released,
        step.apply,
        step.undo,
        tuple(
            assumption
            for assumption in split_tier(price.assumptions)[1]
            if assumption not in (*known.assumptions, *whole_hosts(price.released))
        ),
        (
            *(objective for objective in price.against if objective not in known.against),
            *(line for line in price.moving.lines if line not in known.moving.lines),
        ),
    )


def _stopped(service: str, price: Estimate, base: Fleet) -> int:
    """Return the number of replicas of a service that pricing stopped; which ones may differ between states."""
    return sum(service in base.listed_by.get(deployment_id, ()) for deployment_id in price.stopped)


def _left(fleet: Fleet, price: Estimate) -> Fleet:
    """Return a fleet without the replicas that pricing stopped and the hosts that it released."""
    gone = {host.host_id for host in fleet.hosts if host.name in price.released}
    services = tuple(
        replace(
            service, deployments=tuple(one for one in service.deployments if one.deployment_id not in price.stopped)
        )
        if any(one.deployment_id in price.stopped for one in service.deployments)
        else service
        for service in fleet.services
    )
    if not gone:
        return replace(fleet, services=services)
    hosts = tuple(host for host in fleet.hosts if host.host_id not in gone)
    return Fleet(
        services, hosts, tuple(device for device in fleet.devices if device.host_id not in gone), fleet.commitments
    )
