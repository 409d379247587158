"""Departures: of each service on a host that it shares, the change that saves most among those with which it leaves."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pertoken.advisor.checks import held
from pertoken.advisor.present import Present
from pertoken.advisor.proposals import Candidate, encoded
from pertoken.rule import Proposal
from pertoken.savings.estimate import Estimate, failing
from pertoken.savings.saving import LIKELY
from pertoken.state.fleet import Fleet, Host


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A priced change with which one service leaves devices of shared hosts; whether it keeps objectives is unknown."""

    service: str
    proposal: Proposal
    money: Estimate
    net: int
    """Likely net saving alone, nano-USD per month."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A change with which one service leaves the devices that it shares hosts on, whether it saves alone or not."""

    service: str
    rule_id: str
    net: int
    """Likely net saving alone, nano-USD per month."""
    proposal: str
    """JSON that `proposal_of` reads: the service without devices."""


def departures(rule_id: str, priced: Iterable[tuple[Candidate, Estimate]], gathered: Present) -> Iterator[Departure]:
    """Yield the departure of each service that saves most, of the changes that are known to keep its objectives.

    Most changes fail by their likely figures already: whole latencies of all of them would double the time of pricing.
    """
    changes = [change for result in priced if (change := _leaving(*result, gathered.fleet)) is not None]
    by_service = defaultdict[str, list[_Leaving]](list)
    for change, fails in zip(changes, failing([change.money for change in changes], gathered.context), strict=True):
        if not fails:
            by_service[change.service].append(change)
    for name, of_service in by_service.items():
        for change in sorted(of_service, key=lambda change: -change.net):
            if isinstance(held(change.money), Estimate):
                proposal = json.dumps(encoded(change.proposal, gathered.fleet), sort_keys=True)
                yield Departure(name, rule_id, change.net, proposal)
                break


def _leaving(possible: Candidate, money: Estimate, present: Fleet) -> _Leaving | None:
    """Return a priced change with which one service leaves devices of shared hosts; None for any other."""
    moved = {change.target for change in possible.diff.changes if change.field.startswith("placement.")}
    names = {name for key in moved if isinstance(key, int) for name in present.listed_by.get(key, ())}
    if money.net is None or money.uncounted or len(names) != 1 or possible.diff.removed or possible.diff.added:
        return None
    (name,) = names
    service = possible.after.service(name)
    if any(deployment.device_ids for deployment in service.deployments) or not _shared_hosts(present, name):
        return None
    return _Leaving(name, replace(possible.proposal, state=service), money, money.net[LIKELY])


def best_by_service(departures: Iterable[Departure]) -> Mapping[str, Departure]:
    """Return the departure of each service that saves most."""
    best: dict[str, Departure] = {}
    for leaving in sorted(departures, key=lambda leaving: (-leaving.net, leaving.rule_id, leaving.proposal)):
        best.setdefault(leaving.service, leaving)
    return best


def services_on(fleet: Fleet, host: Host) -> frozenset[str]:
    """Return the names of the services with a deployment on a host."""
    return frozenset(
        name for deployment in fleet.deployments_on(host) for name in fleet.listed_by.get(deployment.deployment_id, ())
    )


def _shared_hosts(fleet: Fleet, name: str) -> list[Host]:
    hosts = {fleet.device(key).host_id for key in fleet.used_by[name] if key in fleet.device_ids}
    return [host for host in map(fleet.host, sorted(hosts)) if len(services_on(fleet, host)) > 1]
