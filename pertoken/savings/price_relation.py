"""Price of a device-hour elsewhere over its price here, from listed offers, like with like."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import median

from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer, marks
from pertoken.catalog.price_pairs import Pair, words
from pertoken.forecast.serving import Range
from pertoken.state.placement import Placement
from pertoken.units import format_usd

OUTSIDE_THE_LIST = ("owned", "reserved")
"""Purchases whose price has no relation to a list price."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Price per device-hour there over here: (lowest, median, highest) over the pairs, and where it comes from."""

    ratio: Range
    note: str


def price_relation(before: Placement, after: Placement, market: Market, today: date, paid: float) -> Relation | str:
    """Return how the price of a device-hour changes with a placement; a reason where no offers show it.

    `paid` is what a device-hour costs here, nano-USD. With the same provider, list prices are compared with each other:
    a discount on one holds for the other. Another provider asks for its list price, whatever is paid here, and so does
    anyone after devices that are owned or reserved.
    """
    if after.purchase == "per_token":
        return "a token price is for a whole service: move all of its deployments"
    if after.purchase in OUTSIDE_THE_LIST:
        return f"{after.purchase} devices have no listed price: set one with `pertoken prices set`"
    at, to = market.accelerator(before.accelerator), market.accelerator(after.accelerator)
    if at is None or to is None:
        return "its device is not in the catalog"
    paid_as, wanted = (_purchase(placement) for placement in (before, after))
    if after.provider != before.provider or before.purchase in OUTSIDE_THE_LIST:
        return _at_list_price(after, to.name, wanted, market, today, paid)
    if after.region != before.region:
        return _in_another_region(before, after, (at.name, paid_as), (to.name, wanted), market, today)
    pairs = market.comparable((at.name, paid_as), (to.name, wanted), before.provider)
    return pairs if isinstance(pairs, str) else _of_pairs(words((to.name, wanted)), pairs, market, today)


def _purchase(placement: Placement) -> str:
    return "spot" if placement.purchase == "spot" else "on_demand"


def _at_list_price(
    placement: Placement, accelerator: str, wanted: str, market: Market, today: date, paid: float
) -> Relation | str:
    offers = _offers(accelerator, wanted, placement, market)
    what = f"{words((accelerator, wanted))} at {_where(placement)}"
    if not offers:
        return f"no offer of {what} is listed"
    prices = sorted(offer.nano_usd_per_device_hour for offer in offers)
    if paid <= 0:
        return f"a device-hour costs nothing here: no listed price of {what} can be below"
    middle = median(prices)
    named = min(
        offers, key=lambda offer: (abs(offer.nano_usd_per_device_hour - middle), offer.instance_type, offer.region)
    )
    note = (
        f"{what} is listed at {format_usd(named.nano_usd_per_device_hour)}/device-hour, {middle / paid:.2f} of what is "
        f"paid here ({format_usd(paid)}){_marked(offers, market, today)}; {named.instance_type} in {named.region}, "
        f"{named.as_of}, {len(offers)} offers from {format_usd(prices[0])} to {format_usd(prices[-1])}"
    )
    return Relation((prices[0] / paid, middle / paid, prices[-1] / paid), note)


def _in_another_region(
    before: Placement, after: Placement, paid: tuple[str, str], wanted: tuple[str, str], market: Market, today: date
) -> Relation | str:
    sides = []
    for (accelerator, purchase), placement in ((paid, before), (wanted, after)):
        offers = _offers(accelerator, purchase, placement, market)
        if not offers:
            return f"no offer of {words((accelerator, purchase))} at {_where(placement)} is listed"
        sides.append(offers)
    pairs = [Pair(one, other) for one in sides[0] for other in sides[1]]
    # Instances of one accelerator differ in their CPUs and memory by up to four times the price of a device.
    alike = [pair for pair in pairs if pair.base.instance_type == pair.other.instance_type]
    return _of_pairs(f"{words(wanted)} at {_where(after)}", alike or pairs, market, today)


def _where(placement: Placement) -> str:
    return " in ".join(filter(None, (placement.provider or "an unknown provider", placement.region)))


def _offers(accelerator: str, purchase: str, at: Placement, market: Market) -> Sequence[Offer]:
    """Return the offers at a placement, those of low confidence only where there are no others."""
    offers = market.offers_at(replace(at, accelerator=accelerator), purchase)
    return [offer for offer in offers if offer.confidence != "low"] or offers


def _of_pairs(what: str, pairs: Sequence[Pair], market: Market, today: date) -> Relation:
    ratios = sorted(pair.ratio for pair in pairs)
    middle = median(ratios)
    named = min(pairs, key=lambda pair: (abs(pair.ratio - middle), pair.base.provider, pair.base.region))
    offer_before, offer_after = named.base, named.other
    marked = _marked([offer for pair in pairs for offer in (pair.base, pair.other)], market, today)
    providers = sorted({pair.other.provider for pair in pairs})
    # The first clause stands alone beside a total.
    note = (
        f"{what} costs {named.ratio:.2f} of {words((offer_before.accelerator, offer_before.purchase))}, the median of "
        f"{len(pairs)} listed pairs{marked}; at {', '.join(providers)}, e.g. {offer_after.provider} "
        f"{offer_after.instance_type} in {offer_after.region} "
        f"{format_usd(offer_after.nano_usd_per_device_hour)}/device-hour ({offer_after.as_of}) against "
        f"{format_usd(offer_before.nano_usd_per_device_hour)}"
    )
    return Relation((ratios[0], middle, ratios[-1]), note)


def _marked(offers: Sequence[Offer], market: Market, today: date) -> str:
    warnings = marks(offers, today, market.stale_after_days)
    return f" ({'; '.join(warnings)})" if warnings else ""
