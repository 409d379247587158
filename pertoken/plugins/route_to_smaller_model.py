"""Rule: send the easy requests to a smaller model."""

from collections.abc import Iterator
from typing import Any

from pertoken.rule import Evidence, Fleet, Market, Service, Skip, rule, skip

WORTH_ROUTING = 0.5
"""Active parameters of the smaller model over the present one's, at most: beyond it a router hardly pays."""
HARDLY_BUSY = 0.05
"""Busy share below which there are too few requests to divide."""
EASY = 0.4
"""Share of requests assumed easy, below what Sources, 2 found; only a labelled sample of your own can replace it."""


@rule("route-to-smaller-model")
def route_to_smaller_model(seen: Evidence, service: Service, fleet: Fleet, market: Market) -> Iterator[Fleet | Skip]:
    """Send requests that a smaller model answers as well to one.

    ## Why it saves
    A model of an eighth of the size reads and computes an eighth per token. Where part of the requests are easy, that
    part needs fewer device-hours.
    ## When it is wrong
    Which requests are easy is not in the telemetry, so no money is promised: only the share from which it pays. Worse
    answers cost more than tokens. The smaller model needs a device of its own until the larger one gives some back.
    ## How to apply
    Label a sample of your traffic by comparing both models' answers; put a router in front; start with 1 to 5 %.
    ## Sources
    1. Ong et al., RouteLLM, arXiv 2406.18665: routing between two models by predicted quality.
    2. arXiv 2501.08219: 44.5 % of queries answered equally well by models of 1B to 32B parameters.
    3. The limits on size and busy time are judgement.
    """
    busy = seen.busy.mean
    now = service.deployments[0]
    if busy < HARDLY_BUSY:
        yield skip("hardly-busy", f"it is busy {busy:.0%} of the time: too few requests to divide between two models")
        return
    if any(each.model != now.model for each in service.deployments):
        yield skip("already-routed", "its replicas serve different models already")
        return
    device = market.accelerator(now.accelerator)
    active = now.model.params_active or 0
    smaller = [m for m in market.smaller_models(now.model) if (m.params_active or active) <= WORTH_ROUTING * active]
    if not smaller:
        yield skip(
            "no-smaller-model",
            f"the catalog has no model of half its size or less in the family of {now.model.name}",
        )
        return
    ranks = market.fewest_ranks(smaller[0], now.weight_dtype, device) if device else None
    if ranks is None:
        yield skip("layout-unknown", "its device or the dtype of its weights is not known")
        return
    layout: dict[str, Any] = {name: 1 for name in ("pp", "dp") if getattr(now, name) is not None}
    small = now.but(model=smaller[0], tp=ranks, **layout)
    # The others serve an even part of what these two leave: each of n ends with (1 - EASY) / n.
    part = (1 - EASY) / len(service.deployments)
    yield fleet.replace(now, now.serving_share(part, service.name), small.serving_share(EASY, service.name))
