"""Like services on hosts of their own, and a rule for them."""

from collections.abc import Iterator
from dataclasses import replace

from pertoken.rule import Deployment
from pertoken.savings.context import Context
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from tests.savings.fleets import context, fleet_of, host, llama, low_batch


def narrower(now: Deployment) -> Iterator[Deployment]:
    yield now.but(weight_dtype="fp8", tp=1)


def services(count: int) -> tuple[Fleet, Context]:
    """Alike services, each on a host of its own."""
    made = [
        Service(f"chat-{n}", (replace(llama(n, (10 * n, 10 * n + 1)), serves=((f"chat-{n}", None),)),))
        for n in range(1, count + 1)
    ]
    fleet = fleet_of(made, [host(n) for n in range(1, count + 1)])
    return fleet, replace(
        context(fleet),
        deployments={n: low_batch() for n in range(1, count + 1)},
        services={service.name: low_batch() for service in made},
    )
