"""Rule: serve easy requests from a small model at the edge, all others from the large one."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import smaller_models
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
    """Settings of the rule; a supplied share is priced. The defaults are judgement (Sources, 3)."""

    edge: tuple[str, ...] = option(("L4", "L40S"), "accelerators for edge sites, smallest first")
    largest: float = option(
        0.25, "maximum active parameters of the edge model over those of the present one", low=0.001, high=1
    )
    min_busy: float = option(0.05, "busy share below which there are too few requests to split", low=0, high=1)
    edge_share: float | None = option(
        None, "share of requests that the edge model answers equally well: label a sample", low=0.01, high=0.99
    )
    planned_share: float = option(
        0.4,
        "share of requests for which the break-even is shown while `edge_share` is not supplied",
        low=0.01,
        high=0.99,
    )


@rule("split-hybrid")
def split_hybrid(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Serve easy requests from a small model on one cheap device near the clients, all others centrally.

    ## Why it saves
    A model of a tenth of the size runs on one cheap device at each site. The requests that it answers never reach the
    large model, which then needs fewer devices, and their first tokens do not cross the network to the central site.
    ## When it is wrong
    Telemetry does not show which requests a small model answers equally well, so no saving is stated, only the share at
    which it pays, until you supply `edge_share`. Every site needs a device, a spare and somebody who maintains it: idle
    sites cost 1.7 to 2.1 times as much per token as a pool. Where clients are near the central site, the rule
    route-requests does the same without sites.
    ## How to apply
    Label a sample of your traffic by comparing the outputs of both models. Start the small model at one site behind a
    router that sends it the requests that it answers well, and all others to the central site. Compare a week of both
    before the next site.
    ## Sources
    1. (measured) arXiv 2501.08219: 44.5 % of queries answered equally well by models of 1B to 32B parameters.
    2. (vendor) edge sites at 40 to 50 % utilization compared with 85 % in a pool; 2 to 3 times the cost per token.
    3. The thresholds are judgement; the prices of the edge devices are the catalog's offers.
    """
    smaller = smaller_models(seen, service, market, max_size=options.largest, min_busy=options.min_busy)
    if isinstance(smaller, Skip):
        yield smaller
        return
    placed = _placed(smaller, options, market)
    if placed is None:
        yield skip(
            "no-edge-device",
            f"none of {len(smaller)} smaller models fits one {' or '.join(options.edge)} with a listed offer",
        )
        return
    present = service.deployments[0]
    small, name, dtype = placed
    layout = {name: 1 for name in ("tp", "pp", "dp") if getattr(present, name) is not None}
    edge = present.but(model=small, weight_dtype=dtype, **layout).on(Placement(accelerator=name, purchase="on_demand"))
    share = options.planned_share if options.edge_share is None else options.edge_share
    source = None if options.edge_share is None else "as [rules.split-hybrid] states"
    # The other replicas split the rest evenly: each of n replicas serves (1 - share) / n.
    even_share = (1 - share) / len(service.deployments)
    split = fleet.replace(
        present, present.serving_share(even_share, service.name), edge.serving_share(share, service.name, source)
    )
    yield propose(split, risk="quality", effort="high", excludes=("route-requests", "consolidate", "smaller-model"))


def _placed(smaller: list[Model], options: Options, market: Market) -> tuple[Model, str, str] | None:
    """Return the largest model that fits one edge device, the device's name and the dtype of the weights."""
    for model in smaller:
        for name in options.edge:
            device = market.accelerator(name)
            if device is None or not market.offers(device.name):
                continue
            dtype = "fp8" if device.fp8_flops is not None else "bf16"
            if market.fewest_ranks(model, dtype, device) == 1:
                return model, device.name, dtype
    return None
