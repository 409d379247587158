"""What another accelerator or purchase would cost beside what is paid now, from listed offers, like with like."""

from dataclasses import dataclass
from datetime import date
from statistics import median

from pertoken.catalog.market import Market, Pair
from pertoken.deployment import Deployment
from pertoken.forecast.serving import Range
from pertoken.units import format_usd

ENOUGH_PROVIDERS = 2
"""Providers that must list both sides before their relation is taken for the market's; a market limited to the
person's own provider needs no second."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Price per device-hour there over here: (least, median, most) over the pairs, and where it comes from."""

    ratio: Range
    note: str


def price_relation(now: Deployment, to: Deployment, market: Market, today: date | None) -> Relation | str:
    """How the device price changes with the accelerator and the purchase; a reason where no offers tell.

    Only providers and regions that list both are compared: providers differ by more than accelerators do.
    """
    here, there = market.accelerator(now.accelerator), market.accelerator(to.accelerator)
    if here is None or there is None:
        return "its device is not in the catalog"
    wanted = "spot" if to.purchase == "spot" else "on_demand"
    what = f"{there.name} {wanted.replace('_', '-')}"
    pairs = market.pairs((here.name, "on_demand"), (there.name, wanted))
    if not pairs:
        return f"no provider lists {what} beside {here.name} on-demand"
    providers = {pair.here.provider for pair in pairs}
    if len(providers) < ENOUGH_PROVIDERS and {offer.provider for offer in market.all_offers} != providers:
        return f"only {', '.join(providers)} lists {what} beside {here.name}: name your provider if it is yours"
    ratios = [pair.ratio for pair in pairs]
    middle = median(ratios)
    named = min(pairs, key=lambda pair: (abs(pair.ratio - middle), pair.here.provider, pair.here.region))
    return Relation((min(ratios), middle, max(ratios)), _note(what, named, pairs, providers, market, today))


def _note(
    what: str, named: Pair, pairs: tuple[Pair, ...], providers: set[str], market: Market, today: date | None
) -> str:
    here, there = named.here, named.there
    said = (
        f"{what} costs {named.ratio:.2f} of {here.accelerator} on-demand, the median of {len(pairs)} listed pairs at "
        f"{', '.join(sorted(providers))}; e.g. {there.provider} {there.instance_type} in {there.region} "
        f"{format_usd(there.nano_usd_per_device_hour)}/device-hour ({there.as_of}) against "
        f"{format_usd(here.nano_usd_per_device_hour)}"
    )
    oldest = min(offer.as_of for pair in pairs for offer in (pair.here, pair.there))
    if today is not None and (today - oldest).days > market.stale_after_days:
        said += f"; stale: listed up to {(today - oldest).days} days ago, check before acting"
    return said
