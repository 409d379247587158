"""Rule: route easy requests to a smaller model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pertoken.plugins.fleet.smaller_models import smaller_models
from pertoken.plugins.unknown import CATALOG, DOCTOR
from pertoken.rule import Evidence, Fleet, Market, Proposal, Service, Skip, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """Settings of the rule; a supplied share is priced. The defaults are judgement; `planned_share` is below the share
    in Sources, 2."""

    largest: float = option(
        0.5, "maximum active parameters of the smaller model over those of the present one", low=0.001, high=1
    )
    min_busy: float = option(0.05, "busy share below which there are too few requests to split", low=0, high=1)
    easy_share: float | None = option(
        None, "share of requests that the smaller model answers equally well: label a sample", low=0.01, high=0.99
    )
    planned_share: float = option(
        0.4,
        "share of requests for which the break-even is shown while `easy_share` is not supplied",
        low=0.01,
        high=0.99,
    )


@rule("route-requests")
def route_requests(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Route requests to a smaller model where it answers them equally well.

    ## Why it saves
    A model of an eighth of the size reads and computes an eighth per token. Where some of the requests are easy, these
    need fewer device-hours.
    ## When it is wrong
    Telemetry does not show which requests are easy, so no saving is stated, only the share at which it pays, until you
    supply `easy_share`. Worse outputs cost more than tokens. The smaller model needs its own device until the larger
    one frees some.
    ## How to apply
    Label a sample of your traffic by comparing the outputs of both models. Put a router in front of them. Start with 1
    to 5 % of the requests.
    ## Sources
    1. Ong et al., RouteLLM, arXiv 2406.18665: routing between two models by predicted quality.
    2. arXiv 2501.08219: 44.5 % of queries answered equally well by models of 1B to 32B parameters.
    3. The thresholds on size and busy time are judgement.
    """
    smaller = smaller_models(seen, service, market, max_size=options.largest, min_busy=options.min_busy)
    if isinstance(smaller, Skip):
        yield smaller
        return
    now = service.deployments[0]
    device = market.accelerator(now.accelerator)
    ranks = market.fewest_ranks(smaller[0], now.weight_dtype, device) if device else None
    if ranks is None:
        known = f"{now.accelerator or 'an unknown device'} with weights in {now.weight_dtype or 'an unknown dtype'}"
        hint = DOCTOR if device and now.weight_dtype is None else CATALOG
        yield skip("layout-unknown", f"the ranks that {smaller[0].name} needs on {known} are not known: {hint}")
        return
    layout: dict[str, Any] = {name: 1 for name in ("pp", "dp") if getattr(now, name) is not None}
    small = now.but(model=smaller[0], tp=ranks, **layout)
    share = options.planned_share if options.easy_share is None else options.easy_share
    source = None if options.easy_share is None else "as [rules.route-requests] states"
    # The other replicas split the rest evenly: each of n replicas serves (1 - share) / n.
    even_share = (1 - share) / len(service.deployments)
    routed = fleet.replace(
        now, now.serving_share(even_share, service.name), small.serving_share(share, service.name, source)
    )
    yield propose(routed, risk="quality", effort="high")
