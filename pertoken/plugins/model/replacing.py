"""Helpers of rules that replace a model."""

from collections.abc import Iterable
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


def replaced(service: Service, models: Iterable[Model], market: Market) -> list[Service]:
    """Return a service with each of other models: all on the fewest ranks that hold them, then on more ranks.

    The fewest may be too slow. More than at present are not tried, unless the model needs them. Where ranks are not
    known, only the model changes.
    """
    now = service.deployments[0]
    device = market.accelerator(now.accelerator)
    layouts: list[tuple[int, Service]] = []
    for model in models:
        ranks = () if device is None or now.tp is None else market.ranks(model, now.weight_dtype, device)
        tried = [n for n in ranks if n <= max(ranks[0], now.tp or 1)]
        stages: dict[str, Any] = {"pp": 1} if now.pp is not None else {}
        layouts += [(place, service.but(model=model, tp=n, **stages)) for place, n in enumerate(tried)]
        layouts += [] if tried else [(0, service.but(model=model))]
    return [layout for _, layout in sorted(layouts, key=lambda entry: entry[0])]
