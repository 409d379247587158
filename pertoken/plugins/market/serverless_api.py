"""Rule: compare a service with an API that serves its model by the token."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import Evidence, Fleet, Market, Placement, Proposal, Service, Skip, option, propose, rule, skip

PAID_ANYWAY = ("owned", "reserved")


@dataclass(frozen=True)
class Options:
    """What a person may set."""

    providers: tuple[str, ...] = option((), "serverless APIs to compare with; all that are listed where none is named")


@rule("serverless-api")
def serverless_api(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Serve from an API that is paid by the token, where the load is too small for devices of one's own.

    ## Why it saves
    Devices are paid by the hour, an API by the token: below a break-even of tokens per hour the API is cheaper, above
    it the devices are. Both bills are computed at the measured load, and the break-even is shown in either case.
    ## When it is wrong
    Prompts leave your systems; whether they may is not in the telemetry, nor whether the API's model (its weights and
    their format) answers as well. So nothing is promised until a person sets `market.token_apis`. Adapters and
    fine-tuned weights are not served there. Rate limits and latency are the API's.
    ## How to apply
    Send a sample of your prompts to both and compare answers and latency; check where the data may go; then point the
    clients at the API and give the hosts back.
    ## Sources
    1. The break-even is arithmetic: dollars per hour of the hosts over the price of a token; at $0.72/Mtok an H100 has
       to serve 883 tokens/s around the clock at $2.29 an hour, and 2,654 at $6.88.
    2. The catalog's token prices, each with source and date.
    """
    tokens = seen.prompt_tok_s.mean + seen.generated_tok_s.mean
    models = {deployment.model.name for deployment in service.deployments}
    placements = {deployment.placement for deployment in service.deployments}
    paid = sorted({str(placement.purchase) for placement in placements if placement.purchase in PAID_ANYWAY})
    units = {(placement.provider, placement.instance_type) for placement in placements}
    committed = sum(
        commitment.count for commitment in fleet.commitments if (commitment.provider, commitment.instance_type) in units
    )
    adapters = max(len(deployment.lora_adapters or ()) for deployment in service.deployments)
    if tokens <= 0:
        yield skip("no-load", "it served 0 tokens/s in the window: releasing it saves more")
    elif service.isolation == "tenant":
        yield skip("isolated", "isolation is set for it: its prompts do not leave its own devices")
    elif paid or committed:
        how = " and ".join(paid) if paid else f"{committed} committed instances"
        yield skip("committed", f"its devices are {how}: they are paid for whether used or not")
    elif "per_token" in {placement.purchase for placement in placements}:
        yield skip("per-token-already", f"{len(service.deployments)} of its deployments are paid by the token already")
    elif len(models) > 1:
        yield skip("several-models", f"its replicas serve {len(models)} models")
    elif adapters:
        yield skip("adapters", f"it serves {adapters} adapters, which no listed API has")
    else:
        yield from _offers(service, market, options)


def _offers(service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    model = service.deployments[0].model
    listed = market.token_offers(model)
    offers = [offer for offer in listed if offer.provider in (options.providers or (offer.provider,))]
    for offer in offers:
        moved = service.on(Placement(provider=offer.provider, purchase="per_token"))
        yield propose(moved, risk="quality", effort="high", excludes=("commit-capacity",))
    if not offers:
        yield skip("no-token-price", f"{len(listed)} serverless APIs list a price of {model.name} in the catalog")
