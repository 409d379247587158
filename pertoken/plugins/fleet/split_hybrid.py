"""Rule: answer easy requests from a small model at the edge, all others from the large one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pertoken.plugins.fleet.smaller_models import smaller_models
from pertoken.rule import (
    Evidence,
    Fleet,
    Market,
    Model,
    Placement,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
)


@dataclass(frozen=True)
class Options:
    """What a person may set; a share that is supplied is priced; the defaults are judgement (Sources, 3)."""

    edge: tuple[str, ...] = option(("L4", "L40S"), "accelerators that stand at an edge site, smallest first")
    largest: float = option(
        0.25, "active parameters of the edge model over the present one's, at most", low=0.001, high=1
    )
    min_busy: float = option(0.05, "busy share below which there are too few requests to divide", low=0, high=1)
    edge_share: float | None = option(
        None, "share of requests that the edge model answers as well: label a sample", low=0.01, high=0.99
    )
    planned_share: float = option(
        0.4, "share of requests for which the break-even is shown while none is supplied", low=0.01, high=0.99
    )


@rule("split-hybrid")
def split_hybrid(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Answer easy requests from a small model on one cheap device near the clients, all others centrally.

    ## Why it saves
    A model of a tenth of the size runs on one cheap device at each site. What it answers never reaches the large model,
    which then needs fewer devices, and its clients get the first token without the way to the centre.
    ## When it is wrong
    Which requests a small model answers as well is not in the telemetry, so no money is promised: only the share from
    which it pays, until you supply `edge_share`. Every site needs a device, a spare and somebody who looks after it:
    sites that idle cost 1.7 to 2.1 times as much per token as a pool. Where clients are near the centre, route-requests
    does the same without sites.
    ## How to apply
    Label a sample of your traffic by comparing both models' answers. Start the small model at one site behind a router
    that sends it what it answers well, and all else to the centre. Compare a week of both before the next site.
    ## Sources
    1. [M] arXiv 2501.08219: 44.5 % of queries answered equally well by models of 1B to 32B parameters.
    2. [V] Edge sites at 40 to 50 % utilization beside 85 % of a pool; 2 to 3 times the cost per token. One vendor.
    3. The limits are judgement; the prices of the edge devices are the catalog's offers.
    """
    smaller = smaller_models(seen, service, market, max_size=options.largest, min_busy=options.min_busy)
    if isinstance(smaller, Skip):
        yield smaller
        return
    placed = _placed(smaller, options, market)
    if placed is None:
        yield skip(
            "no-edge-device",
            f"none of {len(smaller)} smaller models fits one {' or '.join(options.edge)} that somebody offers",
        )
        return
    now = service.deployments[0]
    small, name, dtype = placed
    layout: dict[str, Any] = {name: 1 for name in ("tp", "pp", "dp") if getattr(now, name) is not None}
    edge = now.but(model=small, weight_dtype=dtype, **layout).on(Placement(accelerator=name, purchase="on_demand"))
    share = options.planned_share if options.edge_share is None else options.edge_share
    source = None if options.edge_share is None else "as [rules.split-hybrid] states"
    # The others serve an even part of what these two leave: each of n ends with (1 - share) / n.
    part = (1 - share) / len(service.deployments)
    split = fleet.replace(now, now.serving_share(part, service.name), edge.serving_share(share, service.name, source))
    yield propose(split, risk="quality", effort="high", excludes=("route-requests", "consolidate", "smaller-model"))


def _placed(smaller: list[Model], options: Options, market: Market) -> tuple[Model, str, str] | None:
    """Return the largest model that fits one edge device, with that device and its weights' dtype."""
    for model in smaller:
        for name in options.edge:
            device = market.accelerator(name)
            if device is None or not market.offers(device.name):
                continue
            dtype = "fp8" if device.fp8_flops is not None else "bf16"
            if market.fewest_ranks(model, dtype, device) == 1:
                return model, device.name, dtype
    return None
