"""Rule: serve all replicas but one from spot devices."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import missed_objective
from pertoken.rule import (
    Evidence,
    Fleet,
    Market,
    Placement,
    Proposal,
    Service,
    Skip,
    counted,
    option,
    propose,
    rule,
    skip,
)


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the discount is judgement (Sources, 3)."""

    min_replicas: int = option(
        2, "minimum number of replicas: with fewer, an interruption is an outage (Sources, 1)", low=2
    )
    min_discount: float = option(
        0.2, "minimum listed discount: below it interruptions may cost what spot saves", low=0, high=1
    )
    queue: float = option(1.0, "waiting requests (p95) at or above which it has no replica to lose", low=0)


@rule("use-spot")
def use_spot(
    seen: Evidence, service: Service, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Serve all replicas but one from spot devices.

    ## Why it saves
    Providers sell idle devices 30 to 85 % below on-demand and may reclaim them at short notice. Serving keeps no state
    that a retry could not rebuild, so that a replica may be lost as long as another one answers.
    ## When it is wrong
    With a single replica every interruption is an outage. Some zones list spot at the on-demand price: no discount.
    Long generations are lost midway, and capacity may be gone exactly when you need it. A service that misses its
    objectives cannot lose a replica.
    ## How to apply
    Keep one replica on-demand, put the others on spot in two or more zones behind a load balancer, and drain a replica
    when its notice arrives (2 min on AWS, 30 s on Google Cloud and Azure).
    ## Sources
    1. Mao et al., SkyServe, EuroSys 2025 (arXiv 2411.01438): replicas over spot zones with an on-demand fallback.
    2. docs.aws.amazon.com, EC2 User Guide, Spot Instance interruption notices.
    3. AWS Spot Instance Advisor, February 2026: 15 to 20 % of P5 instances interrupted in a month.
    """
    busy = seen.busy.mean
    waiting = seen.waiting.p95 if seen.has("waiting") else 0.0
    placements = {deployment.placement for deployment in service.deployments}
    paid = {placement.purchase for placement in placements} - {None, "on_demand"}
    accelerators = {placement.accelerator for placement in placements}
    committed = {(commitment.provider, commitment.instance_type) for commitment in fleet.commitments}
    replicas = len(service.deployments)
    if paid:
        yield skip("not-on-demand", f"its devices are paid as {' and '.join(sorted(map(str, paid)))}, not on-demand")
    elif committed & {(placement.provider, placement.instance_type) for placement in placements}:
        names = ", ".join(sorted(f"{count} x {name}" for name, count in _instances(fleet).items()))
        yield skip("committed", f"its instances are committed ({names}), which is paid whether they are used or not")
    elif replicas < options.min_replicas:
        reason = (
            f"it has {counted(replicas, 'replica')}, fewer than {options.min_replicas}: an interruption is an outage"
        )
        yield skip("single-replica", reason)
    elif not all(market.accelerator(name) for name in accelerators):
        names = ", ".join(sorted(name or "its device" for name in accelerators))
        yield skip("device-unknown", f"{names} is not in the catalog: no spot offer can be compared")
    elif busy <= 0:
        yield skip("no-load", "it was busy 0 % of the window: releasing it saves more")
    elif missed := missed_objective(seen, service, "is"):
        yield skip("slo-missed", f"{missed}: reclaimed replicas would make it worse")
    elif waiting >= options.queue:
        yield skip("saturated", f"{waiting:.1f} requests wait (p95): it has no replica to lose")
    else:
        names = ", ".join(sorted(map(str, accelerators)))
        discounts = [_discount(placement, market) for placement in placements]
        if None in discounts:
            yield skip("no-offer", f"{names} is not listed both on-demand and as spot where it runs: 0 pairs of prices")
            return
        discount = min(discount for discount in discounts if discount is not None)
        if discount >= options.min_discount:
            yield propose(service.on(Placement(purchase="spot"), all_but=1), risk="availability", effort="high")
        else:
            least = f"of at least {options.min_discount:.0%}"
            yield skip("no-discount", f"spot offers of {names} are listed {discount:.0%} below on-demand, not {least}")


def _instances(fleet: Fleet) -> dict[str, int]:
    return {commitment.instance_type: commitment.count for commitment in fleet.commitments}


def _discount(placement: Placement, market: Market) -> float | None:
    """Return the largest listed spot discount (0 to 1) for an instance like this, in its region if known.

    None if no such instance is listed both on-demand and as spot.
    """
    name = placement.accelerator or ""
    listed = {
        (offer.provider, offer.region, offer.instance_type): offer.nano_usd_per_device_hour
        for offer in market.offers(name, "on_demand")
        if placement.provider in (None, offer.provider)
        and placement.region in (None, offer.region)
        and placement.instance_type in (None, offer.instance_type)
    }
    ratios = [
        offer.nano_usd_per_device_hour / listed[key]
        for offer in market.offers(name, "spot")
        if (key := (offer.provider, offer.region, offer.instance_type)) in listed
    ]
    return max(0.0, 1 - min(ratios)) if ratios else None
