"""Rule: compare a service with an API that serves its model per token."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import Evidence, Fleet, Market, Placement, Proposal, Service, Skip, option, propose, rule, skip

PAID_ANYWAY = ("owned", "reserved")


@dataclass(frozen=True)
class Options:
    """Settings of the rule."""

    providers: tuple[str, ...] = option((), "serverless APIs to compare with; empty for all listed ones")


@rule("serverless-api")
def serverless_api(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Serve from an API priced per token where the load is too small for dedicated devices.

    ## Why it saves
    Devices are paid by the hour, an API by the token: below a break-even of tokens per hour the API is cheaper, above
    it the devices are. Both bills are computed at the measured load, and the break-even is always shown.
    ## When it is wrong
    Prompts leave your systems, and telemetry does not show whether they may. It does not show either whether the API's
    model (its weights and their format) answers equally well. So no saving is stated until a person sets
    `market.token_apis`. The API does not serve your adapters or fine-tuned weights. Its rate limits and latency apply.
    ## How to apply
    Send a sample of your prompts to both and compare outputs and latency. Check where the data may go. Then point the
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
        yield skip("isolated", "isolation is set: its prompts must not leave its own devices")
    elif paid or committed:
        how = " and ".join(paid) if paid else f"{committed} committed instances"
        yield skip("committed", f"its devices are {how}: they are paid for whether used or not")
    elif "per_token" in {placement.purchase for placement in placements}:
        yield skip("per-token-already", f"{len(service.deployments)} of its deployments are already paid per token")
    elif len(models) > 1:
        yield skip("several-models", f"its replicas serve {len(models)} models")
    elif adapters:
        yield skip("adapters", f"it serves {adapters} adapters, which no listed API serves")
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
