"""Rule: rent the same devices in another region, or from another provider."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import (
    Evidence,
    Fleet,
    Market,
    Offer,
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
    """Settings of the rule; the discount is judgement (Sources, 3)."""

    min_saving: float = option(0.15, "minimum listed saving: below it a move is not worth the work", low=0, high=1)
    providers: tuple[str, ...] = option((), "providers to consider; empty for all listed ones")
    regions: tuple[str, ...] = option((), "regions where data may go; empty for all listed ones")


@rule("change-provider")
def change_provider(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Rent the same devices in a cheaper region, or from a cheaper provider.

    ## Why it saves
    List prices of one accelerator differ by more than a factor of four between providers, and by a third between
    regions of one provider. Text is small: a million tokens are about 5 MB.
    ## When it is wrong
    Data and clients may have to stay where they are, by law or for latency: name the regions that are allowed. Your own
    price may be below the list price. Commitments are paid until they end. Small providers differ in networks, support
    and how often devices are unavailable.
    ## How to apply
    Start one replica at the new place, compare it under your own load and from your clients' locations, then move the
    traffic and give the old hosts back.
    ## Sources
    1. The catalog's offers, each with source and date: H100 SXM from $2.29 (Verda) to $10.98 (Google Cloud) a
       device-hour on-demand, AWS P5 by region from $55.04 to $75.96 an hour.
    2. Four to five bytes a token and list prices for egress of $0.09/GB: below a thousandth of a dollar per Mtok, two
       hundredths with the framing of server-sent events.
    3. The threshold of 15 % is judgement.
    """
    busy = seen.busy.mean
    placements = {deployment.placement for deployment in service.deployments}
    present_placement = service.deployments[0].placement
    paid = {placement.purchase for placement in placements} - {None, "on_demand"}
    units = {(placement.provider, placement.instance_type) for placement in placements}
    committed = sum(
        commitment.count for commitment in fleet.commitments if (commitment.provider, commitment.instance_type) in units
    )
    if busy <= 0:
        yield skip("no-load", "it was busy 0 % of the window: releasing it saves more")
    elif service.isolation == "tenant":
        yield skip("isolated", "isolation is set: a price must not decide where its data goes")
    elif paid:
        yield skip("not-on-demand", f"its devices are paid as {' and '.join(sorted(map(str, paid)))}, not on-demand")
    elif committed:
        yield skip("committed", f"{committed} of its instances are committed: they are paid for whether used or not")
    elif len(placements) > 1:
        yield skip("several-places", f"its {len(service.deployments)} replicas run in {len(placements)} places")
    elif present_placement.provider is None or present_placement.accelerator is None:
        accelerator_name = present_placement.accelerator or "an unknown device"
        yield skip(
            "place-unknown", f"it runs on {accelerator_name} at an unknown provider: set `provider` of its hosts"
        )
    else:
        yield from _moves(service, present_placement, market, options)


def _moves(service: Service, placement: Placement, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    replicas, ranks = len(service.deployments), service.deployments[0].n_devices or 1
    offers = market.offers(placement.accelerator or "")
    same = market.offers_at(placement)
    if not same:
        yield skip("no-offer", f"none of {len(offers)} offers of {placement.accelerator} is listed where it runs")
        return

    def bill(offer: Offer) -> int:
        return offer.instances_for(replicas, ranks) * offer.nano_usd_per_hour

    present = min(same, key=bill)
    elsewhere = [
        offer
        for offer in offers
        if offer not in same and offer.n_devices >= ranks and _elsewhere(offer, placement) and _allowed(offer, options)
    ]
    trusted = [offer for offer in elsewhere if offer.confidence != "low"] or elsewhere
    at_home = [
        offer
        for offer in trusted
        if offer.provider == placement.provider and offer.instance_type == present.instance_type
    ]
    abroad = [offer for offer in trusted if offer.provider != placement.provider]
    cheapest = [min(offers, key=bill) for offers in (at_home, abroad) if offers]
    better = [offer for offer in cheapest if 1 - bill(offer) / bill(present) >= options.min_saving]
    for offer in better:
        to = Placement(offer.provider, offer.region, offer.instance_type, purchase="on_demand")
        yield propose(service.on(to), risk="availability", effort="high", excludes=("commit-capacity",))
    if not better:
        best = max((1 - bill(offer) / bill(present) for offer in cheapest), default=0.0)
        yield skip(
            "cheap-already",
            f"the cheapest of {len(elsewhere)} other offers of {placement.accelerator} for {replicas} × "
            f"{ranks} devices is listed {max(0.0, best):.0%} below {present.provider} {present.instance_type}, not "
            f"{options.min_saving:.0%}",
        )


def _elsewhere(offer: Offer, placement: Placement) -> bool:
    return offer.provider != placement.provider or placement.region not in (None, offer.region)


def _allowed(offer: Offer, options: Options) -> bool:
    return offer.provider in (options.providers or (offer.provider,)) and offer.region in (
        options.regions or (offer.region,)
    )
