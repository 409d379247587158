"""Price of a device-hour elsewhere over its price here, from listed offers, like with like."""

from dataclasses import dataclass
from datetime import date
from statistics import median

from pertoken.catalog.market import Market, Offer, Pair
from pertoken.forecast.serving import Range
from pertoken.state.placement import Placement
from pertoken.units import format_usd

MIN_PROVIDERS = 2
"""Providers that must list both sides before their relation is taken for the market's; a market limited to the
person's own provider needs no second."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Price per device-hour there over here: (lowest, median, highest) over the pairs, and where it comes from."""

    ratio: Range
    note: str


def price_relation(here: Placement, there: Placement, market: Market, today: date) -> Relation | str:
    """Return how the price of a device-hour changes with a placement; a reason where no offers show it.

    With the same provider and region, only providers and regions that list both sides are compared: providers differ
    by more than accelerators do. Another provider or region is compared by what both list.
    """
    if there.purchase == "per_token":
        return "no token price of this model is in the catalog"
    if there.purchase in ("owned", "reserved"):
        return f"{there.purchase} devices have no listed price: set one with `pertoken prices set`"
    at, to = market.accelerator(here.accelerator), market.accelerator(there.accelerator)
    if at is None or to is None:
        return "its device is not in the catalog"
    wanted = there.purchase if there.purchase == "spot" else "on_demand"
    what = f"{to.name} {wanted.replace('_', '-')}"
    if (there.provider, there.region) != (here.provider, here.region):
        return _elsewhere(here, there, (at.name, to.name), wanted, market, today)
    pairs = market.pairs((at.name, "on_demand"), (to.name, wanted))
    if not pairs:
        return f"no provider lists {what} beside {at.name} on-demand"
    providers = {pair.here.provider for pair in pairs}
    if len(providers) < MIN_PROVIDERS and {offer.provider for offer in market.all_offers} != providers:
        return f"only {', '.join(providers)} lists {what} beside {at.name}: name your provider if it is yours"
    ratios = [pair.ratio for pair in pairs]
    middle = median(ratios)
    named = min(pairs, key=lambda pair: (abs(pair.ratio - middle), pair.here.provider, pair.here.region))
    return Relation((min(ratios), middle, max(ratios)), _note(what, named, pairs, providers, market, today))


def _elsewhere(
    here: Placement, there: Placement, names: tuple[str, str], wanted: str, market: Market, today: date
) -> Relation | str:
    """Compare the offers of two providers or regions; unknown parts of a placement match any."""
    sides = []
    for name, purchase, placement in ((names[0], "on_demand", here), (names[1], wanted, there)):
        offers = [each for each in market.offers(name, purchase) if _matches(each, placement)]
        if placement.provider is None or not offers:
            where = " in ".join(filter(None, (placement.provider or "an unknown provider", placement.region)))
            return f"no offer of {name} {purchase.replace('_', '-')} at {where} is listed"
        sides.append(offers)
    pairs = [Pair(one, other) for one in sides[0] for other in sides[1]]
    ratios = sorted(pair.ratio for pair in pairs)
    named = min(pairs, key=lambda pair: abs(pair.ratio - median(ratios)))
    what = f"{names[1]} {wanted.replace('_', '-')} at {there.provider}"
    providers = {named.here.provider, named.there.provider}
    return Relation((ratios[0], median(ratios), ratios[-1]), _note(what, named, tuple(pairs), providers, market, today))


def _matches(offer: Offer, placement: Placement) -> bool:
    return offer.provider == placement.provider and placement.region in (None, offer.region)


def _note(what: str, named: Pair, pairs: tuple[Pair, ...], providers: set[str], market: Market, today: date) -> str:
    here, there = named.here, named.there
    oldest = min(offer.as_of for pair in pairs for offer in (pair.here, pair.there))
    days = (today - oldest).days
    stale = f" (stale: listed up to {days} days ago, check before acting)" if days > market.stale_after_days else ""
    # The first clause stands alone beside a total.
    return (
        f"{what} costs {named.ratio:.2f} of {here.accelerator} on-demand, the median of {len(pairs)} listed pairs"
        f"{stale}; at {', '.join(sorted(providers))}, e.g. {there.provider} {there.instance_type} in {there.region} "
        f"{format_usd(there.nano_usd_per_device_hour)}/device-hour ({there.as_of}) against "
        f"{format_usd(here.nano_usd_per_device_hour)}"
    )
