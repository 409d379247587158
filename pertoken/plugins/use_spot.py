"""Rule: serve all replicas but one from spot devices."""

from collections.abc import Iterator

from pertoken.rule import Evidence, Fleet, Market, Placement, Service, Skip, rule, skip

MIN_REPLICAS = 2
"""Replicas below which an interruption is an outage (Sources, 1)."""
MIN_DISCOUNT = 0.2
"""Listed discount below which interruptions (Sources, 3) may cost what they save; the limit is judgement."""


@rule("use-spot")
def use_spot(seen: Evidence, service: Service, fleet: Fleet, market: Market) -> Iterator[Service | Skip]:
    """Serve all replicas but one from spot devices.

    ## Why it saves
    Providers sell idle devices 30 to 85 % below on-demand and may take them back at short notice. Serving keeps no
    state that a retry could not rebuild, so that a replica can be lost as long as another one answers.
    ## When it is wrong
    With a single replica every interruption is an outage. Some zones list spot at the on-demand price: no discount.
    Long generations are lost midway; capacity may be gone exactly when you need it.
    ## How to apply
    Keep one replica on-demand, put the others on spot in two or more zones behind a load balancer, and drain one when
    its notice comes (2 min on AWS, 30 s on Google Cloud and Azure).
    ## Sources
    1. Mao et al., SkyServe, EuroSys 2025 (arXiv 2411.01438): replicas over spot zones with an on-demand fallback.
    2. docs.aws.amazon.com, EC2 User Guide, Spot Instance interruption notices.
    3. AWS Spot Instance Advisor, February 2026: 15 to 20 % of P5 instances interrupted in a month.
    """
    busy = seen.busy.mean
    placements = {each.placement for each in service.deployments}
    paid = {each.purchase for each in placements} - {None, "on_demand"}
    accelerators = {each.accelerator for each in placements}
    committed = {(each.provider, each.instance_type) for each in fleet.commitments}
    if paid:
        yield skip("not-on-demand", f"its devices are paid as {' and '.join(sorted(map(str, paid)))}, not on-demand")
    elif committed & {(each.provider, each.instance_type) for each in placements}:
        yield skip("committed", "its instances are covered by a commitment, which is paid whether they are used or not")
    elif len(service.deployments) < MIN_REPLICAS:
        yield skip("single-replica", "it is the only replica: an interruption would be an outage")
    elif not all(market.accelerator(name) for name in accelerators):
        yield skip("device-unknown", "its device is not in the catalog: no spot offer can be compared")
    elif busy <= 0:
        yield skip("no-load", "it served nothing in the window: releasing it saves more")
    elif all(_discounted(each, market) for each in placements):
        yield service.on(Placement(purchase="spot"), all_but=1)
    else:
        names = ", ".join(sorted(map(str, accelerators)))
        yield skip("no-discount", f"no spot offer of {names} is listed really below on-demand")


def _discounted(placement: Placement, market: Market) -> bool:
    """Return whether spot is listed well below on-demand where the placement is, or anywhere if that is not known."""
    name = placement.accelerator or ""
    return any(
        pair.ratio <= 1 - MIN_DISCOUNT
        for pair in market.pairs((name, "on_demand"), (name, "spot"))
        if placement.provider in (None, pair.here.provider) and placement.region in (None, pair.here.region)
    )
