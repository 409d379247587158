"""Helpers of rules that replace a model."""

from typing import Any

from pertoken.plugins.replicas import alike
from pertoken.rule import Deployment, Evidence, Market, Model, Service, Skip, skip

MODEL_RULES = ("smaller-model", "mixture-of-experts", "prune", "route-requests")
"""Rules that choose the served model: at most one of them applies at a time."""


def refusal(seen: Evidence, service: Service, min_busy: float) -> Skip | None:
    """Return a refusal for a service that is hardly busy or has replicas that differ, or None."""
    busy = seen.busy.mean
    if busy < min_busy:
        return skip("hardly-busy", f"it is busy {busy:.1%} of the time, below {min_busy:.0%}: there is no time to save")
    if not alike(service):
        count = len(service.deployments)
        return skip("replicas-differ", f"its {count} replicas differ in model, engine, accelerator, weights or ranks")
    if service.deployments[0].model.params_active is None:
        name = service.deployments[0].model.name
        return skip("size-unknown", f"the parameters of {name} are not known: neither engine nor catalog has them")
    return None


def fewest_ranks(now: Deployment, model: Model, market: Market) -> int | None:
    """Return the fewest tensor-parallel ranks that hold a model in the present dtype; None if not known."""
    device = market.accelerator(now.accelerator)
    return None if device is None else market.fewest_ranks(model, now.weight_dtype, device)


def replaced(service: Service, model: Model, market: Market) -> Service:
    """Return a service with another model, on the fewest ranks that hold it if these are known."""
    now = service.deployments[0]
    ranks = fewest_ranks(now, model, market)
    layout: dict[str, Any] = {}
    if ranks is not None and now.tp is not None:
        layout = {"tp": ranks} | ({"pp": 1} if now.pp is not None else {})
    return service.but(model=model, **layout)
